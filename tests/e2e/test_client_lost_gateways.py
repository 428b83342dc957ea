"""Gateways killed in mid-transfer where another path is left: the data arrives all the same."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.held_store import OBJECTS, take
from tests.faults.stranger import answering

from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.status import TransferStatus

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.e2e.held_store import HeldStore
    from tests.faults.http_proxy import FaultProxy

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@pytest.fixture
def job(servers: tuple[S3Server, S3Server], gate: FaultProxy) -> TransferJob:
    """Small objects, and large ones whose second parts wait at the gate."""
    bucket = "lost-sink"
    source, destination = servers
    for server in servers:
        server.make_bucket(bucket)
    source.fill(bucket, "p/", {f"large{i}": os.urandom(11 * MIB) for i in range(4)})
    source.fill(bucket, "p/", {f"small{i}": os.urandom(100) for i in range(20)})
    return TransferJob(
        Location(f"s3://{bucket}/p/", source.region, source.endpoint),
        Location(f"s3://{bucket}/q/", destination.region, gate.url),
        limits=Limits(chunk_mib=5),
    )


def test_a_gateway_killed_beside_another_path(
    kit: ClientKit, job: TransferJob, gate: FaultProxy, servers: tuple[S3Server, S3Server]
) -> None:
    """The other sink takes its chunks, in the same epoch."""
    client = kit.client()
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK), count=2))
    handle = fleet.sinks[-1]
    doomed = handle.node
    killed: list[str] = []

    def kill(status: TransferStatus) -> None:
        if not killed and status.is_running and len(status.open_uploads) >= 2:
            os.kill(int(handle.details["pid"]), signal.SIGKILL)
            killed.append(doomed)
            take(gate)

    try:
        epochs: list[int] = []
        result = client.transfer(
            job, fleet, on_status=kill, on_submitted=lambda _, where: epochs.append(where.epoch)
        )
        assert killed
        assert epochs == [1]
        assert (result.copied, result.failed) == (24, 0)
        # No gateway was started in its place.
        assert len(kit.home.gateways()) == len(fleet.gateways) - 1
    finally:
        client.teardown(fleet)
    kit.ended_well(job, servers)


def test_a_stranger_at_the_address_of_a_killed_lead_does_no_harm(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, tmp_path: Path
) -> None:
    """The address of a spot instance may go to another machine; that was a permanent failure."""
    client = kit.client()
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK), count=2))
    doomed = fleet.sources[0]
    killed: list[str] = []

    def kill(status: TransferStatus) -> None:
        if not killed and held.held():
            killed.append(doomed.node)
            kit.kill(fleet, doomed.node)
            strangers.enter_context(answering(doomed.control, tmp_path))
            held.take()

    leads: list[str] = []
    with ExitStack() as strangers:
        try:
            client.transfer(
                held_job,
                fleet,
                on_submitted=lambda _, where: leads.append(where.lead),
                on_status=kill,
            )
        finally:
            client.teardown(fleet)
    assert killed
    assert leads == [handle.node for handle in fleet.sources]
    assert held.keys() == set(OBJECTS)
    assert held.is_whole()


def test_interrupted_when_no_gateway_is_left(
    kit: ClientKit, held: HeldStore, held_job: TransferJob
) -> None:
    """The client itself removes uploads and journal then."""
    fleets: list[Fleet] = []

    def interrupt(status: TransferStatus) -> None:
        if held.held() and held.open_uploads():
            kit.kill(fleets[0])
            held.refuse()
            raise KeyboardInterrupt

    plan = kit.plan((kit.SOURCE, kit.SINK))
    with pytest.raises(KeyboardInterrupt):
        kit.client().run(held_job, plan=plan, on_fleet=fleets.append, on_status=interrupt)
    assert kit.home.traces() == []
    keys = held.keys()
    assert [key for key in keys if ".skyplane" in key] + held.open_uploads() == []
