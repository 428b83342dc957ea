from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from skyplane_gateway.errors import (
    GatewayUnreachable,
    NotFound,
    SkyplaneError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.lead.retry import (
    LONGEST_PAUSE_S,
    MAX_ATTEMPTS,
    THROTTLED_WITHIN_S,
    patiently,
    pause_s,
)

Run = Callable[[Any], Any]


class Calls:
    """Fails as told, then answers; `at_s` says when it was called."""

    def __init__(self, failures: Iterable[SkyplaneError]) -> None:
        self.at_s: list[float] = []
        self._failures: Iterator[SkyplaneError] = iter(failures)

    async def __call__(self) -> str:
        self.at_s.append(asyncio.get_running_loop().time())
        for error in self._failures:
            raise error
        return "done"


def throttled() -> Iterator[SkyplaneError]:
    while True:
        yield Throttled("slow down")


def test_what_passes_is_called_again_with_pauses(virtual: Run) -> None:
    async def scenario() -> None:
        calls = Calls([StoreUnavailable("503")] * (MAX_ATTEMPTS - 1))
        assert await patiently(calls, random.Random(3)) == "done"
        # Full jitter: drawn from the lead's own source, so that a run can be replayed.
        drawn = random.Random(3)
        expected_s = [pause_s(attempt, drawn) for attempt in range(1, MAX_ATTEMPTS)]
        waited_s = [after - before for before, after in pairwise(calls.at_s)]
        assert waited_s == pytest.approx(expected_s)

    virtual(scenario())


def test_the_last_failure_is_raised_as_it_is(virtual: Run) -> None:
    async def scenario() -> None:
        failures = [StoreUnavailable(str(number)) for number in range(MAX_ATTEMPTS)]
        calls = Calls(failures)
        with pytest.raises(StoreUnavailable) as caught:
            await patiently(calls, random.Random(1))
        assert caught.value is failures[-1]
        assert len(calls.at_s) == MAX_ATTEMPTS

    virtual(scenario())


@pytest.mark.parametrize(
    "error", [NotFound("gone"), StoreUnavailable("bad name", is_permanent=True)]
)
def test_what_is_permanent_is_not_called_again(error: SkyplaneError, virtual: Run) -> None:
    async def scenario() -> None:
        calls = Calls([error])
        with pytest.raises(type(error)):
            await patiently(calls, random.Random(1))
        assert calls.at_s == [0.0]

    virtual(scenario())


def test_a_gateway_that_does_not_answer_is_another_matter(virtual: Run) -> None:
    async def scenario() -> None:
        calls = Calls([GatewayUnreachable("refused")])
        with pytest.raises(GatewayUnreachable):
            await patiently(calls, random.Random(1))
        assert calls.at_s == [0.0]

    virtual(scenario())


def test_throttling_is_waited_out_for_as_long_as_any_store_is(virtual: Run) -> None:
    async def scenario() -> None:
        calls = Calls(throttled())
        with pytest.raises(Throttled):
            await patiently(calls, random.Random(1))
        ended_s = asyncio.get_running_loop().time()
        assert THROTTLED_WITHIN_S <= ended_s <= THROTTLED_WITHIN_S + LONGEST_PAUSE_S
        assert len(calls.at_s) > MAX_ATTEMPTS

    virtual(scenario())


def test_throttling_does_not_use_up_the_attempts(virtual: Run) -> None:
    async def scenario() -> None:
        slow, away = Throttled("slow down"), StoreUnavailable("503")
        calls = Calls([away, *[slow] * 7, *[away] * (MAX_ATTEMPTS - 2)])
        assert await patiently(calls, random.Random(1)) == "done"

    virtual(scenario())


def test_who_waits_can_be_cancelled(virtual: Run) -> None:
    async def scenario() -> None:
        calls = Calls(throttled())
        waiting = asyncio.create_task(patiently(calls, random.Random(1)))
        await asyncio.sleep(20.0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    virtual(scenario())


def test_the_sleep_may_be_somebody_elses(virtual: Run) -> None:
    async def scenario() -> None:
        slept_s: list[float] = []

        async def sleep(seconds: float) -> None:
            slept_s.append(seconds)

        calls = Calls([StoreUnavailable("503")] * 2)
        assert await patiently(calls, random.Random(1), sleep=sleep) == "done"
        assert len(slept_s) == 2
        assert calls.at_s == [0.0] * 3

    virtual(scenario())
