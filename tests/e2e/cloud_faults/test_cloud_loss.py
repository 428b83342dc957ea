"""A cloud loses an instance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cloud_sites import CloudSite
from tests.e2e.held_store import Once

from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.model.job import TransferJob

pytestmark = [pytest.mark.e2e, pytest.mark.long]


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
