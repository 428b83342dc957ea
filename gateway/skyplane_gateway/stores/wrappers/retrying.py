"""A store that retries its requests, under the rate limit of its bucket.

Throttling is retried for minutes, other errors in transit a few times, permanent errors never.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Final, TypeVar

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.errors import (
    WAITED_FOR,
    CredentialsExpired,
    NotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.objects import (
    UNCONDITIONAL,
    Body,
    Credentials,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    StoreCapabilities,
    StoreSpec,
    UploadInfo,
)
from skyplane_gateway.retry import RetryBudget, RetryPolicy
from skyplane_gateway.stores.async_requests import (
    MAX_SMALL_BYTES,
    AsyncRequests,
    HasAsyncRequests,
    Unsettled,
    WholeObject,
)
from skyplane_gateway.stores.base import ObjectStore, Reader, Wants, has_bytes
from skyplane_gateway.stores.wrappers.credential_renewal import CredentialRenewal
from skyplane_gateway.stores.wrappers.rate_limiter import Pause, Permit, RateLimiter
from skyplane_gateway.stores.wrappers.retrying_reader import RetryingReader
from skyplane_gateway.stores.wrappers.store_call import StoreCall

log = logging.getLogger(__name__)

_T = TypeVar("_T")

#: Rows of one page of a listing.
_PAGE_KEYS: Final = 1000

#: Deadline of the calls of this thread; see `RetryingStore.within`.
_DEADLINE_S: ContextVar[float] = ContextVar("deadline_s", default=math.inf)


def is_throttling(store: ObjectStore) -> bool:
    """Whether requests may be waiting because the store throttles or credentials expired."""
    return isinstance(store, RetryingStore) and store.is_throttling


async def try_read(
    store: ObjectStore, key: str, *, length: int, if_match: str | None
) -> WholeObject | None:
    """Read a small object without a thread; None where the caller has to use `read`."""
    if not isinstance(store, RetryingStore):
        return None
    return await store.try_once(
        lambda requests: requests.read(key, length=length, if_match=if_match), length
    )


async def try_put(
    store: ObjectStore,
    key: str,
    data: Body,
    *,
    attributes: ObjectAttributes,
    precondition: Precondition,
    crc32c: int,
) -> ObjectInfo | None:
    """Write a small object without a thread; None where the caller has to use `put`.

    The object may be written all the same.
    """
    if not isinstance(store, RetryingStore):
        return None
    return await store.try_once(
        lambda requests: requests.put(
            key, data, attributes=attributes, precondition=precondition, crc32c=crc32c
        ),
        len(data),
    )


class RetryingStore:
    """See `ObjectStore` and the module.

    `create_upload` is retried only after throttling: after a lost response, a second upload
    could stay open unnoticed.

    Args:
        renewal: opens the store with fresh credentials; None when they never expire.
    """

    def __init__(
        self,
        store: ObjectStore,
        limiter: RateLimiter,
        *,
        renewal: CredentialRenewal | None = None,
        policy: RetryPolicy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pause: Pause = threading.Event.wait,
        rng: random.Random | None = None,
    ) -> None:
        self.spec: StoreSpec = store.spec
        self._renewal = renewal or CredentialRenewal(lambda _: store, None)
        self._limiter = limiter
        self._cancelled = threading.Event()
        self._deadline_s = math.inf
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._pause = pause
        self._rng = rng or random.SystemRandom()

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._store.capabilities

    @property
    def _store(self) -> ObjectStore:
        return self._renewal.store

    @property
    def is_throttling(self) -> bool:
        """Requests may be waiting because the bucket throttles or credentials expired."""
        return self._limiter.is_throttling or self._renewal.is_waiting

    # -- fresh credentials

    @property
    def needs_credentials(self) -> bool:
        """The credentials have expired, or will soon."""
        return self._renewal.is_needed

    def wait_for_credentials(self) -> None:
        """From now on, requests with expired credentials wait for fresh ones."""
        self._renewal.enable_waiting()

    def renew_credentials(self, credentials: Credentials) -> None:
        """Use these from now on, also for requests that wait."""
        self._renewal.replace(credentials)

    # -- limits of waiting

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the waits of this thread's calls in the block to so many seconds altogether.

        Then they raise `Throttled` or `CredentialsExpired`.
        """
        token = _DEADLINE_S.set(self._clock.monotonic() + seconds)
        try:
            yield
        finally:
            _DEADLINE_S.reset(token)

    def cancel(self) -> None:
        """Raise `Cancelled` in calls that wait and in later calls; requests in flight continue."""
        self._cancelled.set()
        self._limiter.wake()

    def reopen(self, within_s: float) -> None:
        """After `cancel`, accept calls for so many seconds, to clean up."""
        self._deadline_s = self._clock.monotonic() + within_s
        self._cancelled = threading.Event()

    def close(self) -> None:
        """Cancel calls that wait; send later calls once, without a wait."""
        self.cancel()
        self.reopen(0.0)
        self._renewal.close()

    # -- `ObjectStore`

    def check(self, prefix: str = "") -> None:
        self._call(lambda: self._store.check(prefix))

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`; a retry continues after the last key."""
        last = start_after

        def rest() -> Iterator[ObjectInfo]:
            return self._store.list(prefix, start_after=last, wants=wants)

        for row in self._rows(rest):
            last = row.key
            yield row

    def head(self, key: str) -> ObjectInfo:
        return self._call(lambda: self._store.head(key))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        """As `ObjectStore.read`; with `if_match`, a retry continues where the body broke."""
        call = self._begin()

        def open_rest(done: int) -> Reader:
            return self._retry(
                call, lambda: self._open(call, key, offset + done, length - done, if_match)
            )

        release = self._limiter.release
        return RetryingReader(
            open_rest, release, length=length, can_resume=if_match is not None, call=call
        )

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        """As `ObjectStore.put`; the precondition does not fail because of an earlier attempt."""
        may_be_written = False

        def once() -> ObjectInfo:
            nonlocal may_be_written
            try:
                return self._store.put(
                    key, data, attributes=attributes, precondition=precondition, crc32c=crc32c
                )
            except (Throttled, StoreUnavailable):
                may_be_written = True
                raise
            except PreconditionFailed:
                written = _find_written(self._store, key, data) if may_be_written else None
                if written is None:
                    raise
                return written

        return self._call(once)

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self._call(lambda: self._store.create_upload(key, attributes), retry_on=(Throttled,))

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        return self._call(
            lambda: self._store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c)
        )

    def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[PartInfo],
        *,
        precondition: Precondition = UNCONDITIONAL,
        size_bytes: int,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        return self._call(
            lambda: self._store.complete_upload(
                key,
                upload_id,
                parts,
                precondition=precondition,
                size_bytes=size_bytes,
                crc32c=crc32c,
            )
        )

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._call(lambda: self._store.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        """As `ObjectStore.list_uploads`; a retry begins again and yields no upload twice."""
        seen: set[UploadInfo] = set()
        for row in self._rows(lambda: self._store.list_uploads(prefix)):
            if row not in seen:
                seen.add(row)
                yield row

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        return self._call(lambda: self._store.list_parts(key, upload_id))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        self._call(lambda: self._store.delete(key, if_match=if_match))

    # -- attempts

    async def try_once(
        self, request: Callable[[AsyncRequests], Awaitable[_T]], size_bytes: int
    ) -> _T | None:
        """One attempt on the event loop; None where the store or the size allow none."""
        inner = self._store
        requests = inner.async_requests if isinstance(inner, HasAsyncRequests) else None
        if requests is None or size_bytes > MAX_SMALL_BYTES:
            return None
        permit = await self._limiter.acquire_on_loop(self._cancelled)
        if permit is None:
            return None
        try:
            found = await request(requests)
        except Unsettled as error:
            log.debug("a thread repeats the request: %s", error)
            return None
        finally:
            self._limiter.release()
        self._limiter.succeeded()
        self._renewal.succeeded()
        return found

    def _begin(self) -> StoreCall:
        budget = RetryBudget(
            self._policy,
            monotonic=self._clock.monotonic,
            rng=self._rng,
            deadline_s=min(self._deadline_s, _DEADLINE_S.get()),
            throttled_since_s=lambda: self._limiter.throttled_since_s,
        )
        return StoreCall(budget, self._cancelled, self._pause)

    def _call(
        self,
        request: Callable[[], _T],
        retry_on: tuple[type[StoreError], ...] = (Throttled, StoreUnavailable),
    ) -> _T:
        call = self._begin()

        def once() -> _T:
            with self._permit(call):
                return request()

        return self._retry(call, once, retry_on)

    def _retry(
        self,
        call: StoreCall,
        attempt: Callable[[], _T],
        retry_on: tuple[type[StoreError], ...] = (Throttled, StoreUnavailable),
    ) -> _T:
        while True:
            generation = self._renewal.generation
            try:
                return attempt()
            except CredentialsExpired as error:
                self._renewal.wait(generation, error, call)
            except retry_on as error:
                call.wait_after(error)

    def _rows(self, listed: Callable[[], Iterator[_T]]) -> Iterator[_T]:
        """The rows of a listing, which is opened again after an error."""
        call = self._begin()
        while True:
            generation = self._renewal.generation
            try:
                yield from self._pages(listed(), call)
            except CredentialsExpired as error:
                self._renewal.wait(generation, error, call)
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

    def _open(
        self, call: StoreCall, key: str, offset: int, length: int, if_match: str | None
    ) -> Reader:
        """One attempt. The caller releases the permit when the reader is closed."""
        permit = self._limiter.acquire(call.cancelled, call.budget.throttle_left_s)
        try:
            with self._reported(permit):
                return self._store.read(key, offset=offset, length=length, if_match=if_match)
        except BaseException:
            self._limiter.release()
            raise

    @contextmanager
    def _permit(self, call: StoreCall) -> Iterator[None]:
        """Wait until the limiter lets a request through."""
        permit = self._limiter.acquire(call.cancelled, call.budget.throttle_left_s)
        try:
            with self._reported(permit):
                yield
        finally:
            self._limiter.release()

    @contextmanager
    def _reported(self, permit: Permit) -> Iterator[None]:
        """Report the result of a request to the limiter."""
        try:
            yield
        except Throttled as error:
            self._limiter.throttled(permit, error.retry_after_s)
            raise
        except StoreError as error:
            if error.is_permanent:
                self._limiter.succeeded()  # The store has answered.
            raise
        self._limiter.succeeded()
        self._renewal.succeeded()


def _find_written(store: ObjectStore, key: str, data: Body) -> ObjectInfo | None:
    """The object at `key` if it holds these bytes. Raises StoreError when that is unknown."""
    try:
        info = store.head(key)
        is_same = info.size_bytes == len(data) and has_bytes(store, info, data)
    except (NotFound, PreconditionFailed):
        return None
    except (*WAITED_FOR, StoreUnavailable):
        raise
    except StoreError:
        # These credentials may not read it.
        return None
    return info if is_same else None
