"""Each test runs on a strict cloud of each kind, and leaves nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cloud_sites import SITES, CloudSite

from strict_clouds.world import World

if TYPE_CHECKING:
    from skyplane_orchestration.model.job import TransferJob


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
