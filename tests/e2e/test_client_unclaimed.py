"""A transfer that ended well while its orchestrator was away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

    from skyplane_orchestration.transfer.control import SubmittedTransfer

pytestmark = pytest.mark.e2e


def test_an_unacknowledged_success_is_joined(
    kit: ClientKit, servers: tuple[S3Server, S3Server]
) -> None:
    source, destination = servers
    for server in servers:
        server.make_bucket("unclaimed")
    source.fill("unclaimed", "p/", {f"k{number}": b"body" for number in range(3)})
    job = TransferJob(
        Location("s3://unclaimed/p/", source.region, source.endpoint),
        Location("s3://unclaimed/q/", destination.region, destination.endpoint),
    )
    client = kit.client()
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    try:
        submitted = client.submit(job, fleet)
        kit.home.wait_until(lambda: not client.status(fleet, submitted).is_running, "its end")
        told: list[SubmittedTransfer] = []
        result = kit.client().transfer(job, fleet, on_submitted=lambda _, it: told.append(it))
        assert [(it.epoch, it.joined) for it in told] == [(1, True)]
        assert (result.epoch, result.copied) == (1, 3)
        # A further run compares again.
        assert kit.client().transfer(job, fleet).epoch == 2
    finally:
        client.teardown(fleet)
    kit.ended_well(job, servers)
