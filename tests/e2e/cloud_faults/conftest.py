"""Each test runs on a strict cloud of each kind, and leaves nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cloud_faults.fleets import Workers, instances_plan
from tests.e2e.cloud_sites import SITES, CloudSite

from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.plan import TransferPlan


@pytest.fixture(params=list(SITES))
def site(world: World, request: pytest.FixtureRequest) -> Iterator[CloudSite]:
    """Afterwards the cloud has nothing, and no machine runs."""
    with SITES[request.param](world) as made:
        yield made
        assert made.fake.leftovers() == {}
        assert not [machine for machine in world.machines if machine.is_running]


@pytest.fixture
def job(slow: TransferJob, site: CloudSite) -> TransferJob:
    """`slow`, with ends in two regions of the cloud."""
    source, destination = site.regions
    return replace(
        slow,
        source=replace(slow.source, region=source),
        destination=replace(slow.destination, region=destination),
    )


@pytest.fixture
def plan(kit: ClientKit, site: CloudSite) -> TransferPlan:
    return instances_plan(kit, site)


@pytest.fixture
def workers(kit: ClientKit, site: CloudSite, tmp_path: Path) -> Workers:
    clouds_file = tmp_path / "clouds.yaml"
    # Short, so that the loss of a relay is noticed soon.
    site.write_clouds_file(clouds_file, gateway_settings={"ack_deadline_s": 4.0})
    return Workers(kit, clouds_file)
