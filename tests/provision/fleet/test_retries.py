"""How often and how long a request to a cloud is repeated."""

from __future__ import annotations

import pytest
from tests.manual_clock import ManualClock

from skyplane_orchestration.errors import CloudUnavailable, SkyplaneError
from skyplane_orchestration.provision.fleet.error_rules import ErrorResponse
from skyplane_orchestration.provision.fleet.retries import ask

TRANSIENT = ErrorResponse("act", "Busy", 503, "later", "here", is_transient=True)
FINAL = ErrorResponse("act", "No", 400, "never", "here")


def requests_until_given_up(takes_s: float, meaning: ErrorResponse | SkyplaneError | None) -> int:
    """How many requests begin if each fails after this time, with this meaning."""
    clock, begun = ManualClock(), []

    def request() -> None:
        begun.append(clock.now_s)
        clock.advance(takes_s)
        raise TimeoutError

    with pytest.raises(SkyplaneError):
        ask(
            request,
            clock.clock,
            "a cloud",
            "asking",
            errors=(OSError,),
            meaning=lambda _: meaning,
            translate=lambda answer, what: CloudUnavailable(f"{what}: {answer.code}"),
        )
    return len(begun)


@pytest.mark.parametrize(("takes_s", "requests"), [(0.0, 9), (60.0, 3), (300.0, 2)])
def test_silence_is_met_with_few_requests_if_each_takes_long(takes_s: float, requests: int) -> None:
    """A region that takes connections and never answers must not hold a teardown for long."""
    assert requests_until_given_up(takes_s, None) == requests


def test_a_cloud_that_answers_is_asked_nine_times() -> None:
    assert requests_until_given_up(60.0, TRANSIENT) == 9


@pytest.mark.parametrize("meaning", [FINAL, CloudUnavailable("it is off")])
def test_an_error_that_no_retry_helps_is_raised_at_once(
    meaning: ErrorResponse | SkyplaneError,
) -> None:
    assert requests_until_given_up(0.0, meaning) == 1
