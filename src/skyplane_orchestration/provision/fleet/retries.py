"""Repeats requests to the API of a cloud: after throttling, faults, and silence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_random_exponential

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import CloudUnavailable, SkyplaneError
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, ErrorResponse

#: Waits of 0 to 0.5, 1, 2, ... seconds, 40 s on average together.
_ATTEMPTS: Final = 9
#: A request that gets no answer takes a minute, and nine of them would take nine. So no other one
#: begins so long after the first without an answer.
_LONGEST_SILENCE_S: Final = 120.0

#: Together they are longer than a cloud takes to show what it has made.
VISIBLE_WAITS_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

T = TypeVar("T")

#: A random time that doubles, in seconds.
random_wait_s: Final = wait_random_exponential(multiplier=0.5, max=20.0)


def ask(
    request: Callable[[], T],
    clock: Clock,
    cloud: str,
    what: str,
    *,
    errors: tuple[type[Exception], ...],
    meaning: Callable[[BaseException], ErrorResponse | SkyplaneError | None],
    translate: Callable[[ErrorResponse, str], SkyplaneError],
    expected: Collection[str] = (),
    wait_s: Callable[[RetryCallState], float] = random_wait_s,
) -> T:
    """The answer to an idempotent request, which is repeated after throttling, faults and silence.

    Args:
        cloud: as people write it, for messages.
        what: begins them.
        errors: all that the SDK raises.
        meaning: the cloud's refusal in an error, or the error for what no repeat helps; None for
            no answer of the cloud.
        translate: the error for a refusal.
        expected: codes of refusals that the caller handles.
        wait_s: seconds until the next request.

    Raises CloudRefusal: one with an expected code.
    """

    silent_since_s: float | None = None

    def again(state: RetryCallState) -> bool:
        nonlocal silent_since_s
        error = state.outcome.exception() if state.outcome is not None else None
        if not isinstance(error, errors):
            return False
        found = meaning(error)
        if isinstance(found, ErrorResponse):
            silent_since_s = None
            return found.is_transient and found.code not in expected
        if found is not None:
            return False
        now_s = clock.monotonic()
        silent_since_s = now_s if silent_since_s is None else silent_since_s
        return now_s - silent_since_s < _LONGEST_SILENCE_S

    repeated = Retrying(
        sleep=clock.sleep,
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_s,
        retry=again,
        reraise=True,
    )
    try:
        return repeated(request)
    except errors as error:
        found = meaning(error)
        if isinstance(found, ErrorResponse):
            raise (
                CloudRefusal(found) if found.code in expected else translate(found, what)
            ) from error
        silence = f"{what}: {cloud} does not answer ({type(error).__name__})"
        raise (
            found or CloudUnavailable(f"{silence}; check the network and the endpoint")
        ) from error


def while_refused(
    request: Callable[[], T], clock: Clock, codes: Collection[str], waits_s: Iterable[float]
) -> T:
    """What a request gives, repeated while the cloud refuses it with one of the codes.

    Raises CloudRefusal: it still does after the waits, or refuses it with another expected code.
    """
    for wait_s in waits_s:
        try:
            return request()
        except CloudRefusal as refusal:
            if refusal.code not in codes:
                raise
            clock.sleep(wait_s)
    return request()


def until_visible(clock: Clock, look: Callable[[], T | None]) -> T | None:
    """What `look` finds within half a minute; None for nothing."""
    for wait_s in VISIBLE_WAITS_S:
        found = look()
        if found is not None:
            return found
        clock.sleep(wait_s)
    return look()
