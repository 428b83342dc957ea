from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from skyplane_gateway.common.errors import GatewayUnreachable, SkyplaneError, StoreUnavailable
from skyplane_gateway.lead.backoff import POLICY, Retries


class Calls:
    """Fails as told, then answers; `at_s` has the times of the calls."""

    def __init__(self, *failures: SkyplaneError) -> None:
        self.at_s: list[float] = []
        self._failures = list(failures)

    async def __call__(self) -> str:
        self.at_s.append(asyncio.get_running_loop().time())
        if self._failures:
            raise self._failures.pop(0)
        return "done"


async def test_a_call_is_retried_with_pauses_from_the_leads_random_source() -> None:
    """So that a simulation can be replayed."""
    calls = Calls(*[StoreUnavailable("503")] * (POLICY.attempts - 1))
    assert await Retries(random.Random(3)).run(calls) == "done"
    drawn = random.Random(3)
    expected_s = [POLICY.pause_s(attempt, drawn) for attempt in range(1, POLICY.attempts)]
    assert [b - a for a, b in pairwise(calls.at_s)] == pytest.approx(expected_s)


async def test_the_last_failure_is_raised() -> None:
    failures = [StoreUnavailable(str(number)) for number in range(POLICY.attempts)]
    with pytest.raises(StoreUnavailable) as caught:
        await Retries(random.Random(1)).run(Calls(*failures))
    assert caught.value is failures[-1]


async def test_a_gateway_that_does_not_answer_is_not_retried_here() -> None:
    calls = Calls(GatewayUnreachable("refused"))
    with pytest.raises(GatewayUnreachable):
        await Retries(random.Random(1)).run(calls)
    assert calls.at_s == [0.0]
