"""A task that is run again after its transfer failed, or after it was killed at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from tests.e2e.held_store import OBJECTS, PATIENCE_S, SMALL, HeldStore, wait_for

from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.resume_handle import ResumeHandle
from skyplane_orchestration.operators import SkyplaneTransferOperator
from skyplane_orchestration.transfer import finalize
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.beside import Beside
    from tests.e2e.conftest import ClientKit

    from skyplane_orchestration.model.fleet import Fleet

pytestmark = pytest.mark.e2e

Execute = Callable[[], tuple[dict[str, Any] | Exception, dict[str, Any]]]


@pytest.fixture
def execute(
    kit: ClientKit, held_job: TransferJob, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> Execute:
    """One try of the task: what it returns or raises, and its XComs."""
    monkeypatch.setattr(SkyplaneHook, "client", lambda *_, **__: kit.client())

    def run() -> tuple[dict[str, Any] | Exception, dict[str, Any]]:
        operator = SkyplaneTransferOperator(
            task_id="transfer", job=held_job.to_dict(), fleet=fleet.to_dict()
        )
        pushed: dict[str, Any] = {}
        instance = SimpleNamespace(xcom_push=lambda key, value: pushed.update({key: value}))
        context: Any = {"ti": instance, "outlet_events": {}}
        try:
            return operator.execute(context), pushed
        except AirflowException as error:
            return error, pushed

    return run


@pytest.fixture
def fleet(kit: ClientKit) -> Fleet:
    return kit.client().provision(kit.plan((kit.SOURCE, kit.SINK)))


def test_the_next_try_continues_by_the_journal(
    kit: ClientKit, held: HeldStore, fleet: Fleet, execute: Execute, beside: Beside
) -> None:
    """The first try fails: all gateways die twice."""
    first = beside.start(execute)
    held.wait_until_half_way()
    # Writes of the last half second before a gateway dies may be repeated.
    wait_for(lambda: held.journalled() >= set(SMALL), "the journal")
    kit.home.kill(kit.home.gateways())
    wait_for(kit.home.gateways, "gateways in their place")
    before = held.held()
    wait_for(lambda: held.held() > before, "parts from them")
    kit.home.kill(kit.home.gateways())
    error, pushed = first.result(PATIENCE_S)
    assert isinstance(error, AirflowException)
    assert not isinstance(error, AirflowFailException)
    left = TransferResult.from_dict(pushed["failed_transfer"])
    assert (left.state, left.epoch) == ("failed", 2)
    handle = ResumeHandle.from_text(left.resume_handle)
    assert (handle.fleet_key, handle.transfer_key) == (fleet.key, left.transfer_key)

    held.proxy.release(drop=True)
    returned, _ = execute()
    assert isinstance(returned, dict), returned
    result = TransferResult.from_dict(returned)
    kit.client().teardown(fleet)
    assert (result.state, result.transfer_key) == ("succeeded", left.transfer_key)
    assert held.sent_again() == {}
    assert held.is_whole()
    assert held.keys() == set(OBJECTS)
    assert held.open_uploads() == []


def test_a_move_whose_orchestrator_died_before_its_deletes_is_finished_by_the_next(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, fleet: Fleet
) -> None:
    move = replace(held_job, move=True)
    held.take()
    died = kit.client()
    watch = died.watch(WatchedTransfer(move, fleet, died.submit(move, fleet)))
    wait_for(lambda: watch.poll() == "ended", "the end of the transfer")
    copied = {key: (held.source / key).read_bytes() for key in OBJECTS}

    result = kit.client().transfer(move, fleet)
    kit.client().teardown(fleet)
    assert (result.epoch, result.copied, result.moved) == (1, len(OBJECTS), len(OBJECTS))
    assert list(held.source.iterdir()) == []
    held.require_sent_once()
    for key, body in copied.items():
        (held.source / key).write_bytes(body)
    assert held.is_whole()


@pytest.mark.parametrize("recursive", [True, False], ids=["folder", "one object"])
def test_a_move_whose_orchestrator_died_after_its_deletes_is_a_success_of_the_next(
    kit: ClientKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recursive: bool
) -> None:
    """The source is empty; the journal has the copied objects."""
    source, destination = tmp_path / "source", tmp_path / "destination"
    source.mkdir()
    destination.mkdir()
    (source / "a").write_bytes(b"a")
    ends = [f"file://{source}/", f"file://{destination}/"]
    if not recursive:
        ends[0] += "a"
    move = TransferJob(
        Location(ends[0], kit.SOURCE), Location(ends[1], kit.SINK), move=True, recursive=recursive
    )
    plan = kit.plan((kit.SOURCE, kit.SINK))

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(finalize, "_release_success", dies)
        with pytest.raises(KeyboardInterrupt):
            kit.client().run(move, plan=plan)
    assert list(source.iterdir()) == []

    result = kit.client().run(move, plan=plan)
    assert (result.state, result.copied, result.moved) == ("succeeded", 0, 0)
    assert [path.name for path in destination.iterdir()] == ["a"], "its journal stays"
