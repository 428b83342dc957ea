"""A watch polls one transfer, tells why it ends, and decides nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.fake_client import NODE, FakeClient
from tests.manual_clock import ManualClock
from tests.transfer import samples

from skyplane_orchestration.errors import GatewayDraining, GatewayUnreachable, UnknownTransfer
from skyplane_orchestration.model.job import Policy
from skyplane_orchestration.model.status import TransferStatus, empty_status
from skyplane_orchestration.recovery.failover import SILENT_POLLS
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.control import SubmittedTransfer, TransferRequest
from skyplane_orchestration.transfer.deferred_watch import (
    TransferWatch,
    WatchedTransfer,
    WatchEnd,
)

RUNNING = replace(empty_status(samples.KEY, 1), state="running")
ENDED = replace(RUNNING, state="succeeded")
SUBMITTED = SubmittedTransfer(samples.KEY, 1, NODE, joined=False)
WATCHED = WatchedTransfer(samples.JOB, FakeClient()._fleet(), SUBMITTED)


class FakeControl:
    """Gives one answer to each poll."""

    def __init__(self, *answers: TransferStatus | Exception) -> None:
        self.answers = list(answers)
        self.forgotten = 0

    @contextmanager
    def __call__(self, fleet: Any) -> Iterator[Any]:
        yield self

    def status(self, submitted: SubmittedTransfer, *, wait_s: float) -> TransferStatus:
        assert wait_s == 0, "a poll of a triggerer blocks no thread"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def followers(self, submitted: SubmittedTransfer) -> int:
        self.forgotten += 1
        return 0


def watch_of(
    control: FakeControl, watched: WatchedTransfer = WATCHED, clock: ManualClock | None = None
) -> TransferWatch:
    request = TransferRequest(samples.KEY, watched.job, CredentialSources())
    return TransferWatch(request, watched, control, (clock or ManualClock()).clock)


def test_it_is_plain_data() -> None:
    document = json.loads(json.dumps(WATCHED.to_dict()))
    assert WatchedTransfer.from_dict(document) == WATCHED


def test_it_ends_with_the_transfer() -> None:
    control = FakeControl(RUNNING, ENDED)
    watch = watch_of(control)
    assert (watch.poll(), watch.poll()) == (None, "ended")
    watch.stop()
    assert (watch.has_answered, control.forgotten) == (True, 1)


def test_a_lead_counts_as_silent_after_some_polls_in_a_row() -> None:
    silent = [GatewayUnreachable("no answer")] * (SILENT_POLLS - 1)
    watch = watch_of(FakeControl(*silent, RUNNING, *silent, GatewayUnreachable("no answer")))
    polls = [watch.poll() for _ in range(2 * SILENT_POLLS)]
    assert polls == [None] * (2 * SILENT_POLLS - 1) + ["silent"]


@pytest.mark.parametrize("error", [GatewayDraining("ends"), UnknownTransfer("which?")])
def test_a_lead_that_leads_no_longer_is_silent_at_once(error: Exception) -> None:
    watch = watch_of(FakeControl(error))
    assert watch.poll() == "silent"
    assert not watch.has_answered


def test_the_budget_ends_it() -> None:
    fleet = samples.fleet_of(
        "ab", plan=samples.PRICED_PLAN, regions={"a": samples.A, "b": samples.B}
    )
    delivered = replace(RUNNING, delivered_bytes={0: 10**9}, copied=1)
    for limit_usd, end in ((1.0, None), (0.05, "budget")):
        job = replace(samples.JOB, policy=Policy(max_job_usd=limit_usd))
        watch = watch_of(FakeControl(delivered), replace(WATCHED, job=job, fleet=fleet))
        assert watch.poll() == end


def test_the_deadline_ends_it_also_while_the_lead_is_silent() -> None:
    clock = ManualClock()
    watched = replace(WATCHED, deadline_unix_s=clock.now_s + 10)
    watch = watch_of(FakeControl(RUNNING, RUNNING, GatewayUnreachable("no")), watched, clock)
    assert watch.poll() is None
    clock.advance(10)
    assert (watch.poll(), watch.poll()) == ("deadline", "deadline")


def followed(
    control: FakeControl, clock: ManualClock, watched: WatchedTransfer = WATCHED
) -> WatchEnd | None:
    return watch_of(control, watched, clock).follow(for_s=15.0, longest_pause_s=5.0)


@pytest.mark.parametrize("polls", [1, 2, 5])
def test_a_transfer_that_ends_within_the_time_is_followed_to_its_end(polls: int) -> None:
    clock = ManualClock()
    control = FakeControl(*[RUNNING] * (polls - 1), ENDED)
    assert followed(control, clock) == "ended"
    assert control.forgotten == 0, "who follows it to the end asks for its result"
    assert clock.now_s < 1015.0


def test_a_longer_transfer_is_followed_for_that_time_and_then_left() -> None:
    clock = ManualClock()
    control = FakeControl(*[RUNNING] * 12)
    assert followed(control, clock) is None
    assert clock.now_s == 1015.0
    assert control.forgotten == 1
