"""How often and how long a request to a cloud is repeated."""

from __future__ import annotations

import pytest
from tests.manual_clock import ManualClock

from skyplane_orchestration.provision.fleet.retries import retrying


class Refused(Exception):
    """An answer."""


@pytest.mark.parametrize(("takes_s", "requests"), [(0.0, 9), (60.0, 3), (300.0, 2)])
def test_silence_is_met_with_few_requests_if_each_takes_long(takes_s: float, requests: int) -> None:
    """A region that takes connections and never answers must not hold a teardown for long."""
    clock, begun = ManualClock(), []

    def ask() -> None:
        begun.append(clock.now_s)
        clock.advance(takes_s)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        retrying(clock.clock, lambda error: True, lambda error: False)(ask)
    assert len(begun) == requests


def test_a_cloud_that_answers_is_asked_nine_times() -> None:
    clock, begun = ManualClock(), []

    def ask() -> None:
        begun.append(clock.now_s)
        clock.advance(60.0)
        raise Refused

    with pytest.raises(Refused):
        retrying(clock.clock, lambda error: True, lambda error: True)(ask)
    assert len(begun) == 9


def test_an_error_that_no_retry_helps_is_raised_at_once() -> None:
    clock, begun = ManualClock(), []

    def ask() -> None:
        begun.append(clock.now_s)
        raise Refused

    with pytest.raises(Refused):
        retrying(clock.clock, lambda error: False, lambda error: True)(ask)
    assert len(begun) == 1
