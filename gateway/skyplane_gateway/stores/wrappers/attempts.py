"""Attempts of requests to one bucket: under its rate limit, retried, with fresh credentials."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Final, TypeVar

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import (
    Cancelled,
    CredentialsExpired,
    StoreError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.common.retry import RetryBudget, RetryPolicy
from skyplane_gateway.stores.async_requests import (
    MAX_SMALL_BYTES,
    AsyncRequests,
    Unsettled,
    requests_of,
)
from skyplane_gateway.stores.wrappers.credential_renewal import CredentialRenewal
from skyplane_gateway.stores.wrappers.rate_limiter import Pause, Permit, RateLimiter

log = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Rows of one page of a listing.
_PAGE_KEYS: Final = 1000

#: Deadline of the calls of this thread; see `Attempts.within`.
_DEADLINE_S: ContextVar[float] = ContextVar("deadline_s", default=math.inf)


class StoreCall:
    """Blocks its thread between attempts, until `cancelled` is set."""

    def __init__(self, budget: RetryBudget, cancelled: threading.Event, pause: Pause) -> None:
        self.budget = budget
        self.cancelled = cancelled
        self._pause = pause

    def wait_after(self, error: StoreError) -> None:
        """Wait before the next attempt. The limiter waits for `Retry-After`, for all calls.

        Raises:
            StoreError: the error again, when it is permanent or its budget is spent.
            Cancelled: the call was cancelled.
        """
        pause_s = self.budget.next_pause_s(error)
        if self._pause(self.cancelled, pause_s) or self.cancelled.is_set():
            raise Cancelled("the transfer ended while it waited for its store") from error


class Attempts:
    """How `RetryingStore` sends the requests of its verbs.

    Throttling is retried for minutes, other errors in transit a few times, permanent errors never.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        renewal: CredentialRenewal,
        *,
        policy: RetryPolicy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pause: Pause = threading.Event.wait,
        rng: random.Random | None = None,
    ) -> None:
        self.limiter = limiter
        self.renewal = renewal
        self.pause = pause
        self._cancelled = threading.Event()
        self._deadline_s = math.inf
        self._policy = policy or RetryPolicy()
        self.clock = clock
        self._rng = rng or random.SystemRandom()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the waits of this thread's calls in the block to so many seconds altogether.

        Then they raise `Throttled` or `CredentialsExpired`.
        """
        token = _DEADLINE_S.set(self.clock.monotonic() + seconds)
        try:
            yield
        finally:
            _DEADLINE_S.reset(token)

    def cancel(self) -> None:
        """Raise `Cancelled` in calls that wait and in later calls; requests in flight continue."""
        self._cancelled.set()
        self.limiter.wake()

    def reopen(self, within_s: float) -> None:
        """After `cancel`, accept calls for so many seconds, to clean up."""
        self._deadline_s = self.clock.monotonic() + within_s
        self._cancelled = threading.Event()

    def call(
        self,
        request: Callable[[], _T],
        retry_on: tuple[type[StoreError], ...] = (Throttled, StoreUnavailable),
    ) -> _T:
        """The answer of one verb that sends one request."""
        call = self.begin()

        def attempt() -> _T:
            with self._permit(call):
                return request()

        return self.retry(call, attempt, retry_on)

    def rows(self, listed: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        """The rows of a listing, which is opened again after an error."""
        call = self.begin()
        while True:
            generation = self.renewal.generation
            try:
                yield from self._pages(listed(), call)
            except CredentialsExpired as error:
                self.renewal.wait(generation, error, call.cancelled, call.budget.deadline_s)
            except (Throttled, StoreUnavailable) as error:
                call.wait_after(error)
            else:
                return

    def _pages(self, rows: Iterator[_T], call: StoreCall) -> Iterator[_T]:
        """The rows, fetched page by page, each under a permit."""
        while True:
            with self._permit(call):
                page = tuple(islice(rows, _PAGE_KEYS))
            call.budget.reset()
            yield from page
            if len(page) < _PAGE_KEYS:
                return

    def retry(
        self,
        call: StoreCall,
        attempt: Callable[[], _T],
        retry_on: tuple[type[StoreError], ...] = (Throttled, StoreUnavailable),
    ) -> _T:
        """The result of `attempt`, which is made again after the errors of `retry_on`."""
        while True:
            generation = self.renewal.generation
            try:
                return attempt()
            except CredentialsExpired as error:
                self.renewal.wait(generation, error, call.cancelled, call.budget.deadline_s)
            except retry_on as error:
                call.wait_after(error)

    def begin(self) -> StoreCall:
        """A verb begins, with its budget of retries."""
        budget = RetryBudget(
            self._policy,
            monotonic=self.clock.monotonic,
            rng=self._rng,
            deadline_s=min(self._deadline_s, _DEADLINE_S.get()),
            throttled_since_s=lambda: self.limiter.throttled_since_s,
        )
        return StoreCall(budget, self._cancelled, self.pause)

    def holding(self, call: StoreCall, request: Callable[[], _T]) -> _T:
        """One attempt, whose permit the caller releases when it has read the answer."""
        permit = self.limiter.acquire(call.cancelled, call.budget.throttle_left_s)
        try:
            with self._reported(permit):
                return request()
        except BaseException:
            self.limiter.release()
            raise

    async def try_once(
        self, request: Callable[[AsyncRequests], Awaitable[_T]], size_bytes: int, share: float = 1.0
    ) -> _T | None:
        """One attempt on the event loop; None where the store or the size allow none.

        `share` as in `RateLimiter.acquire_on_loop`.
        """
        requests = requests_of(self.renewal.store)
        if requests is None or size_bytes > MAX_SMALL_BYTES:
            return None
        permit = await self.limiter.acquire_on_loop(self._cancelled, share)
        if permit is None:
            return None
        try:
            found = await request(requests)
        except Unsettled as error:
            log.debug("a thread repeats the request: %s", error)
            return None
        finally:
            self.limiter.release()
        self.limiter.succeeded()
        self.renewal.succeeded()
        return found

    @contextmanager
    def _permit(self, call: StoreCall) -> Iterator[None]:
        """Wait until the limiter lets a request through."""
        permit = self.limiter.acquire(call.cancelled, call.budget.throttle_left_s)
        try:
            with self._reported(permit):
                yield
        finally:
            self.limiter.release()

    @contextmanager
    def _reported(self, permit: Permit) -> Iterator[None]:
        """Report the result of a request to the limiter."""
        try:
            yield
        except Throttled as error:
            self.limiter.throttled(permit, error.retry_after_s)
            raise
        except StoreError as error:
            if error.is_permanent:
                self.limiter.succeeded()  # The store has answered.
            raise
        self.limiter.succeeded()
        self.renewal.succeeded()
