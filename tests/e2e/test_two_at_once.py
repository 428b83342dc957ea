"""Two orchestrators of one key at once, and a teardown in the middle of a transfer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.e2e.held_store import LAST, OBJECTS, PATIENCE_S, HeldStore, wait_for

from skyplane_orchestration.errors import TransferFailed
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import TransferResult

if TYPE_CHECKING:
    from tests.e2e.beside import Beside
    from tests.e2e.conftest import ClientKit

    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.model.status import TransferStatus
    from skyplane_orchestration.transfer.control import SubmittedTransfer

pytestmark = pytest.mark.e2e


@pytest.fixture
def plan(kit: ClientKit) -> TransferPlan:
    return kit.plan((kit.SOURCE, kit.SINK))


def test_the_second_orchestrator_joins_the_first(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, plan: TransferPlan, beside: Beside
) -> None:
    submitted: list[SubmittedTransfer] = []

    def run() -> TransferResult:
        client = kit.client()
        fleet = client.provision(plan)
        return client.transfer(held_job, fleet, on_submitted=lambda _, what: submitted.append(what))

    runs = [beside.start(run) for _ in range(2)]
    held.wait_until_half_way()
    wait_for(
        lambda: len(submitted) >= 2 or any(each.done() for each in runs), "both to have submitted"
    )
    fleet_keys = {path.name for path in kit.home.run_root.iterdir()}
    gateways = kit.home.gateways()
    held.take()
    results = [each.result(PATIENCE_S) for each in runs]
    kit.client().teardown(fleet_keys.pop())
    assert fleet_keys == set()
    assert len(gateways) == 2
    assert sorted(each.joined for each in submitted) == [False, True]
    assert {each.epoch for each in submitted} == {1}
    assert [(each.copied, each.failed) for each in results] == [(len(OBJECTS), 0)] * 2
    held.require_sent_once()
    assert held.is_whole()
    assert held.keys() == set(OBJECTS)


def test_two_calls_of_one_run_both_have_the_result(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, plan: TransferPlan, beside: Beside
) -> None:
    """Once the first to end took the fleet down, and the other raised FleetLost."""
    polls = [0, 0]

    def run(number: int) -> TransferResult:
        def count(_: TransferStatus) -> None:
            polls[number] += 1

        # One looks seldom: it would come too late.
        client = kit.client(poll_s=(0.05, 3.0)[number])
        return client.run(held_job, plan=plan, on_status=count)

    runs = [beside.start(partial(run, number)) for number in range(2)]
    held.wait_until_half_way()
    wait_for(lambda: all(polls), "both to follow the transfer")
    held.take()
    results = [each.result(PATIENCE_S) for each in runs]
    assert [(each.copied, each.failed) for each in results] == [(len(OBJECTS), 0)] * 2
    held.require_sent_once()
    assert held.is_whole()
    assert held.keys() == set(OBJECTS)
    assert kit.home.traces() == []


def test_a_cancelled_transfer_ends_for_both_and_can_be_run_again(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, plan: TransferPlan, beside: Beside
) -> None:
    first, second = kit.client(), kit.client()
    fleet = first.provision(plan)
    submitted = first.submit(held_job, fleet)
    joined = beside.start(lambda: second.transfer(held_job, fleet))
    held.wait_until_half_way()
    held.refuse()
    first.cancel(fleet, submitted)
    error = joined.exception(PATIENCE_S)
    assert isinstance(error, TransferFailed)
    assert isinstance(error.result, TransferResult)
    assert error.result.state == "cancelled"
    assert held.open_uploads() == []
    held.take()
    result = second.transfer(held_job, fleet)
    second.teardown(fleet)
    assert (result.epoch, result.failed) == (2, 0)
    assert held.is_whole()
    assert held.keys() == set(OBJECTS)


def test_a_teardown_in_mid_transfer_leaves_no_upload_and_no_journal(
    kit: ClientKit, held: HeldStore, held_job: TransferJob, plan: TransferPlan, beside: Beside
) -> None:
    client = kit.client()
    fleet = client.provision(plan)
    running = beside.start(lambda: client.transfer(held_job, fleet))
    held.wait_until_half_way()
    assert held.open_uploads() != []
    held.refuse()
    kit.client().teardown(fleet)
    error = running.exception(PATIENCE_S)
    assert isinstance(error, TransferFailed)
    assert kit.home.traces() == []
    assert held.open_uploads() == []
    assert held.keys() < set(OBJECTS) - {LAST}
