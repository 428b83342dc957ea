"""A store that is asked with patience: limited, tried again, never in vain.

Wraps any `ObjectStore`. Throttling is waited out for minutes under the bucket's adaptive
rate; other failures in transit have a small budget of their own; what cannot succeed fails
at once.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
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
from skyplane_gateway.stores.base import ObjectStore, Reader, Wants, read_object
from skyplane_gateway.stores.wrappers.credential_renewal import Renewal
from skyplane_gateway.stores.wrappers.rate_limiter import (
    Pause,
    Permit,
    RateLimiter,
)
from skyplane_gateway.stores.wrappers.retrying_reader import PermitReader, RetryingReader
from skyplane_gateway.stores.wrappers.store_call import StoreCall

_T = TypeVar("_T")

#: Rows that one request of a listing gives.
_PAGE_KEYS: Final = 1000

#: By when what this thread asks of its store has to end; see `RetryingStore.within`.
_UNTIL_S: ContextVar[float] = ContextVar("until_s", default=math.inf)


def is_throttling(store: ObjectStore) -> bool:
    """Whether requests to that store may be waiting because it asked for fewer, or for
    credentials that have expired."""
    return isinstance(store, RetryingStore) and store.is_throttling


class RetryingStore:
    """See `ObjectStore` and the module.

    Beginning an upload is tried again only where the store has surely not done it (it
    throttled); else a second upload could stay open unseen.

    Args:
        store: what is asked.
        limiter: the bucket's.
        spec: what to show as one's own; the store's where not given.
        renewal: holds the store and opens it anew with fresh credentials; where not given,
            it has none that could end.
        clock: measures the time.
        pause: waits.
        rng: jitter of the pauses.
    """

    def __init__(
        self,
        store: ObjectStore,
        limiter: RateLimiter,
        *,
        spec: StoreSpec | None = None,
        renewal: Renewal | None = None,
        policy: RetryPolicy | None = None,
        clock: Clock = SYSTEM_CLOCK,
        pause: Pause = threading.Event.wait,
        rng: random.Random | None = None,
    ) -> None:
        self._renewal = renewal or Renewal(lambda _: store, None)
        self._limiter = limiter
        self._spec = spec or store.spec
        self._ended = threading.Event()
        self._until_s = math.inf
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._pause = pause
        self._rng = rng or random.SystemRandom()

    @property
    def spec(self) -> StoreSpec:
        return self._spec

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._store.capabilities

    @property
    def _store(self) -> ObjectStore:
        return self._renewal.store

    @property
    def is_throttling(self) -> bool:
        """Requests may be waiting because the bucket asked for fewer, or for credentials."""
        return self._limiter.is_throttling or self._renewal.is_refused

    # -- fresh credentials

    @property
    def needs_credentials(self) -> bool:
        """Those that were handed over have expired, or soon will."""
        return self._renewal.is_needed

    def wait_for_credentials(self) -> None:
        """From now on a request whose credentials have expired waits for fresh ones."""
        self._renewal.begin_to_wait()

    def renew_credentials(self, credentials: Credentials) -> None:
        """Ask with these from now on, what waits included.

        Raises:
            ConfigurationInvalid: the store cannot be opened with them.
        """
        self._renewal.replace(credentials)

    # -- an end to patience

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """What this thread asks meanwhile waits for a store that throttles, or for
        credentials, no longer than that altogether; then it raises `Throttled` or
        `CredentialsExpired`."""
        token = _UNTIL_S.set(self._clock.monotonic() + seconds)
        try:
            yield
        finally:
            _UNTIL_S.reset(token)

    def cancel(self) -> None:
        """End every wait of this store now: those who wait get `Cancelled`, and so does
        whoever asks it from now on. What the store is doing already it does."""
        self._ended.set()
        self._limiter.wake()

    def reopen(self, within_s: float) -> None:
        """After `cancel`, answer again for so long: for what is left to be cleared up."""
        self._until_s = self._clock.monotonic() + within_s
        self._ended = threading.Event()

    def close(self) -> None:
        """Those who wait get `Cancelled`; what is still asked is asked once, and in no case
        waits."""
        self.cancel()
        self.reopen(0.0)
        self._renewal.close()

    # -- `ObjectStore`

    def check(self, prefix: str = "") -> None:
        self._patiently(lambda: self._store.check(prefix))

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`; what fails in transit goes on after the last key."""
        call = self._begin()
        last = start_after
        while True:
            generation = self._renewal.generation
            rows = self._store.list(prefix, start_after=last, wants=wants)
            try:
                for row in self._paged(rows, call):
                    last = row.key
                    yield row
            except CredentialsExpired as error:
                self._renew(generation, error, call)
            except (Throttled, StoreUnavailable) as error:
                call.wait_after(error)
            else:
                return

    def head(self, key: str) -> ObjectInfo:
        return self._patiently(lambda: self._store.head(key))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        """As `ObjectStore.read`; a body under a pin that breaks is taken up where it broke."""

        call = self._begin()

        def opened(done: int) -> Reader:
            return self._open(call, key, offset + done, length - done, if_match)

        return RetryingReader(opened, can_resume=if_match is not None, call=call)

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        """As `ObjectStore.put`; an attempt is not refused for what an earlier one wrote."""
        may_have_landed = False

        def once() -> ObjectInfo:
            nonlocal may_have_landed
            try:
                return self._store.put(
                    key, data, attributes=attributes, precondition=precondition, crc32c=crc32c
                )
            except (Throttled, StoreUnavailable):
                may_have_landed = True
                raise
            except PreconditionFailed:
                landed = _find(self._store, key, data) if may_have_landed else None
                if landed is None:
                    raise
                return landed

        return self._patiently(once)

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self._patiently(
            lambda: self._store.create_upload(key, attributes), may_repeat=(Throttled,)
        )

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        return self._patiently(
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
        return self._patiently(
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
        self._patiently(lambda: self._store.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        """As `ObjectStore.list_uploads`; what fails in transit begins again, telling none twice."""
        call = self._begin()
        told: set[UploadInfo] = set()
        while True:
            generation = self._renewal.generation
            try:
                for row in self._paged(self._store.list_uploads(prefix), call):
                    if row not in told:
                        told.add(row)
                        yield row
            except CredentialsExpired as error:
                self._renew(generation, error, call)
            except (Throttled, StoreUnavailable) as error:
                call.wait_after(error)
            else:
                return

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        return self._patiently(lambda: self._store.list_parts(key, upload_id))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        self._patiently(lambda: self._store.delete(key, if_match=if_match))

    def _begin(self) -> StoreCall:
        budget = RetryBudget(
            self._policy,
            monotonic=self._clock.monotonic,
            rng=self._rng,
            deadline_s=min(self._until_s, _UNTIL_S.get()),
            throttled_since_s=lambda: self._limiter.refusing_since_s,
        )
        return StoreCall(budget, self._ended, self._pause)

    def _patiently(
        self,
        request: Callable[[], _T],
        may_repeat: tuple[type[StoreError], ...] = (Throttled, StoreUnavailable),
    ) -> _T:
        call = self._begin()
        while True:
            generation = self._renewal.generation
            try:
                with self._place(call):
                    return request()
            except CredentialsExpired as error:
                self._renew(generation, error, call)
            except may_repeat as error:
                call.wait_after(error)

    def _renew(self, generation: int, error: CredentialsExpired, call: StoreCall) -> None:
        """Wait until there are newer credentials than those of that generation."""
        self._renewal.wait(generation, error, call.cancelled, call.budget.deadline_s)

    def _paged(self, rows: Iterator[_T], call: StoreCall) -> Iterator[_T]:
        """The rows, fetched a page at a time, each page in its place."""
        while True:
            with self._place(call):
                page = tuple(islice(rows, _PAGE_KEYS))
            call.budget.reset()
            yield from page
            if len(page) < _PAGE_KEYS:
                return

    def _open(
        self, call: StoreCall, key: str, offset: int, length: int, if_match: str | None
    ) -> Reader:
        """One attempt with good credentials; it keeps its place until the reader is closed."""
        while True:
            generation = self._renewal.generation
            try:
                return self._open_once(call, key, offset, length, if_match)
            except CredentialsExpired as error:
                self._renew(generation, error, call)

    def _open_once(
        self, call: StoreCall, key: str, offset: int, length: int, if_match: str | None
    ) -> Reader:
        permit = self._limiter.acquire(call.cancelled, call.budget.throttle_left_s)
        try:
            with self._judged(permit):
                found = self._store.read(key, offset=offset, length=length, if_match=if_match)
        except BaseException:
            self._limiter.release()
            raise
        return PermitReader(found, self._limiter.release)

    @contextmanager
    def _place(self, call: StoreCall) -> Iterator[None]:
        """One request: wait for its turn, then tell the limiter how it went."""
        permit = self._limiter.acquire(call.cancelled, call.budget.throttle_left_s)
        try:
            with self._judged(permit):
                yield
        finally:
            self._limiter.release()

    @contextmanager
    def _judged(self, permit: Permit) -> Iterator[None]:
        try:
            yield
        except Throttled as error:
            self._limiter.throttled(permit, error.retry_after_s)
            raise
        except StoreError as error:
            if error.is_permanent:
                self._limiter.succeeded()  # It has answered.
            raise
        self._limiter.succeeded()
        self._renewal.accepted()


def _find(store: ObjectStore, key: str, data: Body) -> ObjectInfo | None:
    """The object at `key` if it holds these bytes. Raises StoreError when it cannot be told."""
    try:
        info, body = read_object(store, key, max_bytes=len(data))
    except (NotFound, PreconditionFailed):
        return None
    except (*WAITED_FOR, StoreUnavailable):
        raise
    except StoreError:
        # Longer than what was sent, or not ours to read.
        return None
    return info if body == data else None
