"""A cloud loses an instance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e.cloud_sites import CloudSite
from tests.e2e.held_store import Once

from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob

pytestmark = [pytest.mark.e2e, pytest.mark.long]

#: Cloud -> the quota of the instance type of its site.
QUOTAS: Final = {"aws": "L-1216C47A", "azure": "standardDSv5Family", "gcp": "N2_CPUS"}


def test_an_instance_that_ends_in_mid_transfer_is_replaced(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    site: CloudSite,
    world: World,
    tmp_path: Path,
) -> None:
    """A spot loss, or somebody in the console. Catalogue of faults, 41."""
    # The loss of a relay is noticed soon.
    client = site.client(kit, tmp_path / "clouds.yaml", gateway_settings={"ack_deadline_s": 4.0})
    fleet = client.provision(site.relayed(kit))
    lost = fleet.gateway(f"{site.relay}/0").details["instance_id"]
    end = Once(gate, lambda: site.end_by_hand(lost))
    try:
        result = client.transfer(job, fleet, on_status=end)
    finally:
        client.teardown(fleet)
    assert end.done
    assert (result.failed, result.epoch) == (0, 2)
    assert "the fleet was broken and was brought up again" in result.warnings
    assert len(world.machines) == 4
    kit.ended_well(job, servers)


def test_a_relay_that_ends_and_is_refused_is_left_out(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    site: CloudSite,
    tmp_path: Path,
) -> None:
    """Its quota is used up in mid-transfer. Catalogue of faults, 30 and 41."""
    client = site.client(kit, tmp_path / "clouds.yaml", gateway_settings={"ack_deadline_s": 4.0})
    plan = replace(site.relayed(kit), objective=client.plan(job).objective)
    cloud, _, region = site.relay.partition(":")
    quota = QUOTAS[cloud]
    fleets: list[Fleet] = []

    def lose() -> None:
        site.fake.conditions.quotas[region, quota] = 0
        site.end_by_hand(fleets[0].gateway(f"{site.relay}/0").details["instance_id"])

    end = Once(gate, lose)
    result = client.run(job, plan=plan, on_fleet=fleets.append, on_status=end)
    assert end.done
    assert (result.failed, result.epoch) == (0, 2)
    assert site.fake.leftovers() == {}
    (warning,) = [text for text in result.warnings if "replanned" in text]
    assert f"the gateways of {site.relay} cannot be replaced" in warning
    kit.ended_well(job, servers)
