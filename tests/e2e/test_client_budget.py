"""A transfer of real gateways that has cost what it may."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from skyplane_orchestration.errors import TransferFailed
from skyplane_orchestration.model.job import Limits, Policy, TransferJob
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server, SlowLink

pytestmark = pytest.mark.e2e

MIB = 1 << 20


def test_a_transfer_at_its_budget_stops_and_can_be_resumed(
    kit: ClientKit, servers: tuple[S3Server, S3Server], brisk_link: SlowLink
) -> None:
    source, destination = servers
    for server in servers:
        server.make_bucket("budget")
    source.fill("budget", "p/", {f"large{i}": os.urandom(11 * MIB) for i in range(3)})
    source.fill("budget", "p/", {f"small{i}": os.urandom(100) for i in range(10)})
    job = TransferJob(
        Location("s3://budget/p/", source.region, source.endpoint),
        Location("s3://budget/q/", destination.region, brisk_link.endpoint),
        limits=Limits(chunk_mib=5),
        # One part of any object is more.
        policy=Policy(max_job_usd=0.005),
    )
    plan = kit.plan((kit.SOURCE, kit.SINK))
    plan = replace(plan, edges=tuple(replace(edge, usd_per_gb=1.0) for edge in plan.edges))
    # A sink with room for two parts, so that there is much left when the first has arrived.
    small = kit.provisioner(gateway_settings={"assembly_mib": 10})
    with pytest.raises(TransferFailed, match="max_job_usd") as caught:
        kit.client(provisioner=small).run(job, plan=plan)
    assert caught.value.is_permanent
    result: Any = caught.value.result
    assert (result.state, result.error_code) == ("failed", "budget-reached")
    assert 0.005 <= result.cost.total_usd < 0.033
    # No gateway is left, and what the journal names is open still.
    assert kit.home.traces() == []
    assert destination.open_uploads("budget") != []
    assert any("/.skyplane/jobs/" in f"/{key}" for key in destination.digests("budget"))

    # It is a person's to say how much more it may cost.
    resumed = kit.client("somebody else").resume(result.resume_handle, max_job_usd=1.0)
    assert (resumed.state, resumed.epoch) == ("succeeded", 2)
    kit.ended_well(job, servers)
