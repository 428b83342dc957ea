"""The client when things go wrong: the right error, and nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.e2e.held_store import Once

from skyplane_orchestration.model.job import TransferJob

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy


pytestmark = [pytest.mark.e2e, pytest.mark.long]

MIB = 1 << 20


def test_a_relay_killed_in_mid_transfer(
    kit: ClientKit, slow: TransferJob, gate: FaultProxy, servers: tuple[S3Server, S3Server]
) -> None:
    """Without another path the fleet is brought up again."""
    client = kit.client(provisioner=kit.provisioner(gateway_settings={"ack_deadline_s": 4.0}))
    fleet = client.provision(kit.relayed())
    kill = Once(gate, lambda: kit.kill(fleet, kit.RELAY))
    told: list[int] = []
    try:
        result = client.transfer(
            slow, fleet, on_status=kill, on_submitted=lambda _, where: told.append(where.epoch)
        )
        assert kill.done
        # The callback gets the restored fleet before there is a new lead.
        assert (result.failed, result.epoch, told) == (0, 2, [1, 1, 2])
        assert "the fleet was broken and was brought up again" in result.warnings
        assert len(kit.home.gateways()) == 3
    finally:
        client.teardown(fleet)
    kit.ended_well(slow, servers)


def test_one_of_two_processes_of_an_instance_killed_in_mid_transfer(
    kit: ClientKit, slow: TransferJob, gate: FaultProxy, servers: tuple[S3Server, S3Server]
) -> None:
    """The other process takes the work: neither a new epoch nor a new fleet."""
    provisioner = kit.provisioner(
        processes_per_instance=2, gateway_settings={"ack_deadline_s": 4.0}
    )
    client = kit.client(provisioner=provisioner)
    fleet = client.provision(kit.relayed())
    assert fleet.size == "6 gateways on 3 instances"
    kill = Once(gate, lambda: kit.kill(fleet, f"{kit.RELAY}/0.1"))
    try:
        result = client.transfer(slow, fleet, on_status=kill)
        assert kill.done
        assert (result.failed, result.epoch, result.warnings) == (0, 1, ())
        assert len(kit.home.gateways()) == 5
    finally:
        client.teardown(fleet)
    kit.ended_well(slow, servers)


def test_no_secret_shows_anywhere(
    kit: ClientKit,
    slow: TransferJob,
    gate: FaultProxy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="skyplane_orchestration")
    client = kit.client()
    fleet = client.provision(kit.relayed())
    shown: list[str] = [repr(fleet), str(fleet.to_dict()), repr(client.authority(fleet.key))]
    looked = Once(gate, lambda: shown.extend(kit.home.visible()))
    try:
        result = client.transfer(replace(slow, encrypt="always"), fleet, on_status=looked)
        shown += [repr(result), *kit.home.visible()]
    finally:
        report = client.teardown(fleet)
    assert looked.done
    shown += [repr(report), caplog.text]
    assert len(shown) > 12
    sealing_key = client.authority(fleet.key).sealing_key(result.transfer_key, fleet.start_id).hex()
    for text in shown:
        assert not [secret for secret in (*kit.secrets, sealing_key) if secret in text]
