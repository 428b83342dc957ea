"""A transfer whose task is deferred: the triggers that watch it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cloud_faults.fleets import OBJECTS, Workers
from tests.e2e.held_store import refuse, take, wait_for

from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer
from strict_clouds.world import World

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.triggers.transfer import SkyplaneTransferTrigger

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def submitted(workers: Workers, job: TransferJob, destination: S3Server) -> WatchedTransfer:
    """A task has submitted the job, on a fleet of its own, and has deferred itself."""
    watched = workers.client().job_run(job).begin()
    assert isinstance(watched, WatchedTransfer)
    assert watched.owns_fleet
    bucket = job.destination.bucket
    wait_for(lambda: len(destination.open_uploads(bucket)) == 2, "both uploads")
    return watched


@pytest.fixture
def triggers(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> Callable[[WatchedTransfer], SkyplaneTransferTrigger]:
    """Makes triggers of a triggerer, which opens clients from the connection."""
    from skyplane_orchestration.triggers.transfer import SkyplaneTransferTrigger

    monkeypatch.setattr(SkyplaneTransferTrigger, "_client", lambda _: workers.client())

    def make(watched: WatchedTransfer) -> SkyplaneTransferTrigger:
        options = {"poll_interval_s": 0.1, "cancel_on_kill": True}
        return SkyplaneTransferTrigger.of(workers.client(), watched, "skyplane_default", **options)

    return make


def test_a_deferred_transfer_that_is_marked_failed_leaves_nothing(
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    triggers: Callable[[WatchedTransfer], SkyplaneTransferTrigger],
) -> None:
    """Catalogue of faults, 36: cancelled and torn down by its trigger."""
    destination, bucket = servers[1], job.destination.bucket
    watched = submitted(workers, job, destination)
    refuse(gate)
    asyncio.run(triggers(watched).on_kill())
    assert destination.open_uploads(bucket) == []
    assert not [key for key in destination.digests(bucket) if not key.startswith("q/small")]


def test_a_triggerer_that_restarts_watches_the_transfer_again(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    world: World,
    triggers: Callable[[WatchedTransfer], SkyplaneTransferTrigger],
) -> None:
    """Catalogue of faults, 37: submitted once, on one fleet."""
    first = triggers(submitted(workers, job, servers[1]))
    _, arguments = first.serialize()

    async def restart() -> TriggerEvent:
        watching = asyncio.ensure_future(anext(first.run()))
        await asyncio.sleep(0)  # It has begun.
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        take(gate)
        again = type(first)(**json.loads(json.dumps(arguments)))
        return await anext(again.run())

    event = asyncio.run(restart()).payload
    assert (event["end"], event["has_answered"]) == ("ended", True)
    result = workers.client().finish(WatchedTransfer.from_dict(event["watched"]))
    assert (result.copied, result.failed, result.epoch) == (OBJECTS, 0, 1)
    assert len(world.machines) == 2
    kit.ended_well(job, servers)
