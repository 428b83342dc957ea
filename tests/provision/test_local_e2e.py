"""The local provisioner with real gateways: certificates, control API, connections."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.authority import Authority, FleetSecret
from skyplane_orchestration.errors import GatewayUnreachable, NotAuthorised, ProvisionFailed
from skyplane_orchestration.provision.local import LocalProvisioner

if TYPE_CHECKING:
    from tests.provision.conftest import LocalHarness, PlanMaker

A, B, C = "aws:us-east-1", "gcp:us-central1", "azure:westeurope"
KEY = "0f1ee70f1ee70f1ee70f1ee70f1ee700"

pytestmark = pytest.mark.e2e


@pytest.fixture
def real(local: LocalHarness) -> LocalProvisioner:
    return LocalProvisioner(replace(local.options, command=(), python=sys.executable))


def test_a_fleet_of_real_gateways_lives_is_repaired_and_ends(
    local: LocalHarness, real: LocalProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
    spec = local.spec(KEY)
    authority = local.authority(spec)
    first = real.ensure(spec, authority)
    for gateway in first.gateways:
        assert b"do-not-tell" not in Path(f"/proc/{gateway.details['pid']}/environ").read_bytes()
        context, uri = authority.client_context(), authority.expected_uri(gateway.node)
        with ControlClient(*gateway.control, context, uri) as session:
            status = session.status()
            assert (status["node"], status["connected"]) == (gateway.node, True)
            assert 0 < status["lease_remaining_s"] <= spec.start_within_s
    assert real.ensure(spec, authority).gateways == first.gateways

    relay = first.gateway(f"{B}/0")
    local.kill(relay)
    second = real.ensure(spec, authority)
    assert [g.node for g in second.gateways if g != first.gateway(g.node)] == [relay.node]

    stranger = Authority(FleetSecret(b"another secret of 32 bytes or more"), KEY)
    with pytest.raises(NotAuthorised):
        real.ensure(spec, stranger)
    assert len(local.running()) == 5

    assert len(real.destroy(KEY)) == 5
    assert local.traces() == []
    with (
        ControlClient(*relay.control, authority.client_context(), "") as session,
        pytest.raises(GatewayUnreachable),
    ):
        session.status()


def test_a_single_gateway_is_connected_with_itself(
    local: LocalHarness, real: LocalProvisioner, plan_of: PlanMaker
) -> None:
    spec = local.spec(KEY, plan=plan_of([(("local:here",), 4.0)], {"local:here": 1}))
    fleet = real.ensure(spec, local.authority(spec))
    assert fleet.sources == fleet.sinks == fleet.gateways
    assert real.destroy(KEY) == ("local:here/0",)
    assert local.traces() == []


def test_a_real_gateway_that_cannot_listen_is_reported(
    local: LocalHarness, real: LocalProvisioner
) -> None:
    # An address of the block that RFC 5737 keeps for documentation: nobody has it.
    options = replace(real.options, address_map={B: "192.0.2.1"})
    spec = local.spec(KEY)
    with pytest.raises(ProvisionFailed, match=rf"(?s)gateway {B}/0 .*192\.0\.2\.1"):
        LocalProvisioner(options).ensure(spec, local.authority(spec))
    assert local.traces() == []
