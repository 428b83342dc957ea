"""Pauses and budgets of retries, in virtual time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.common.errors import (
    CredentialsExpired,
    NotFound,
    SkyplaneError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.common.retry import RetryBudget, RetryPolicy

POLICY = RetryPolicy(attempts=3, throttle_s=60.0, first_pause_s=0.2, longest_pause_s=20.0)
UNAVAILABLE = StoreUnavailable("try again")
SLOW_DOWN = Throttled("slow down")


class Call:
    """A budget with a clock that the test sets."""

    def __init__(self, deadline_s: float = float("inf")) -> None:
        self.now_s = 0.0
        self.budget = RetryBudget(
            POLICY, monotonic=lambda: self.now_s, rng=random.Random(1), deadline_s=deadline_s
        )

    def fail(self, error: SkyplaneError) -> float:
        pause_s = self.budget.next_pause_s(error)
        self.now_s += pause_s
        return pause_s

    def fail_to_the_end(self, error: SkyplaneError) -> None:
        while True:
            self.fail(error)


class Longest(random.Random):
    """The largest of all random numbers."""

    def random(self) -> float:
        return 1.0


def test_pauses_double_to_the_longest() -> None:
    pauses_s = [POLICY.pause_s(attempt, Longest()) for attempt in (1, 2, 3, 4, 7, 8, 9, 99_999)]
    assert pauses_s == pytest.approx([0.2, 0.4, 0.8, 1.6, 12.8, 20.0, 20.0, 20.0])


@given(st.integers(1, 10_000), st.integers(0, 100))
def test_pauses_have_full_jitter(attempt: int, seed: int) -> None:
    pause_s = POLICY.pause_s(attempt, random.Random(seed))
    assert 0 <= pause_s <= min(20.0, 0.2 * 2 ** min(attempt - 1, 60))


def test_a_permanent_error_is_raised_at_once() -> None:
    with pytest.raises(NotFound):
        Call().fail(NotFound("gone"))


def test_throttling_and_other_failures_have_separate_budgets() -> None:
    call = Call()
    for error in (UNAVAILABLE, *[SLOW_DOWN] * 8, UNAVAILABLE):
        call.fail(error)
    with pytest.raises(StoreUnavailable):
        call.fail(UNAVAILABLE)


@pytest.mark.parametrize("error", [SLOW_DOWN, CredentialsExpired("renew them")])
def test_throttling_and_expired_credentials_are_waited_out_for_a_time(
    error: SkyplaneError,
) -> None:
    call = Call()
    with pytest.raises(type(error)):
        call.fail_to_the_end(error)
    assert call.now_s == pytest.approx(60.0)


def test_progress_restores_the_budget() -> None:
    call = Call()
    for _ in range(10):
        call.fail(UNAVAILABLE)
        call.fail(UNAVAILABLE)
        call.budget.reset()


@pytest.mark.parametrize("error", [SLOW_DOWN, UNAVAILABLE])
def test_no_pause_passes_the_deadline(error: SkyplaneError) -> None:
    call = Call(deadline_s=0.01)
    with pytest.raises(type(error)):
        call.fail_to_the_end(error)
    assert call.now_s <= 0.01


def test_a_longer_retry_after_than_the_budget_fails_at_once() -> None:
    with pytest.raises(Throttled):
        Call().fail(Throttled("slow down", retry_after_s=61.0))
