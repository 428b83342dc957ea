"""A store that retries its requests, under the rate limit of its bucket."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import ChecksumMismatch, StoreError, StoreUnavailable, Throttled
from skyplane_gateway.common.objects import (
    UNCONDITIONAL,
    Body,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    StoreCapabilities,
    StoreSpec,
    UploadInfo,
)
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.stores.async_requests import WholeObject, requests_of
from skyplane_gateway.stores.base import ClosingReader, ObjectStore, Reader, Wants
from skyplane_gateway.stores.checksums import crc32c_of
from skyplane_gateway.stores.copy_source import CopiesParts, CopySource
from skyplane_gateway.stores.server_clock import ServerClock
from skyplane_gateway.stores.wrappers.attempts import Attempts, StoreCall
from skyplane_gateway.stores.wrappers.credential_renewal import CredentialRenewal
from skyplane_gateway.stores.wrappers.rate_limiter import HEAD_SHARE, Pause, RateLimiter


def is_throttling(store: ObjectStore) -> bool:
    """Whether requests may be waiting because the store throttles or credentials expired."""
    return isinstance(store, RetryingStore) and store.is_throttling


async def try_read(
    store: ObjectStore, key: str, *, length: int, if_match: str | None
) -> WholeObject | None:
    """Read a small object without a thread; None where the caller has to use `read`."""
    if not isinstance(store, RetryingStore):
        return None
    return await store.attempts.try_once(
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
    return await store.attempts.try_once(
        lambda requests: requests.put(
            key, data, attributes=attributes, precondition=precondition, crc32c=crc32c
        ),
        len(data),
    )


def sends_on_loops(store: ObjectStore) -> bool:
    """Whether `try_head` may succeed."""
    return (
        isinstance(store, RetryingStore) and requests_of(store.attempts.renewal.store) is not None
    )


async def try_head(store: ObjectStore, key: str) -> ObjectInfo | None:
    """Look at an object without a thread; None where the caller has to use `head`."""
    if not isinstance(store, RetryingStore):
        return None
    return await store.attempts.try_once(lambda requests: requests.head(key), 0, HEAD_SHARE)


class RetryingStore:
    """See `ObjectStore` and `Attempts`.

    `create_upload` is sent once. A store may have begun an upload before it said otherwise, and
    the lead, which repeats the request, looks for that one.

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
        self.attempts = Attempts(
            limiter, self._renewal, policy=policy, clock=clock, pause=pause, rng=rng
        )
        self.within, self.cancel = self.attempts.within, self.attempts.cancel
        self.reopen = self.attempts.reopen
        #: From now on, requests with expired credentials wait for fresh ones.
        self.wait_for_credentials = self._renewal.enable_waiting
        #: Use these from now on, also for requests that wait.
        self.renew_credentials = self._renewal.replace

    @property
    def capabilities(self) -> StoreCapabilities:
        return self._store.capabilities

    @property
    def server_clock(self) -> ServerClock | None:
        """See `ahead_s_of`."""
        found: ServerClock | None = getattr(self._store, "server_clock", None)
        return found

    @property
    def _store(self) -> ObjectStore:
        return self._renewal.store

    @property
    def is_throttling(self) -> bool:
        """Requests may be waiting because the bucket throttles or credentials expired."""
        return self.attempts.limiter.is_throttling or self._renewal.is_waiting

    # -- fresh credentials

    @property
    def needs_credentials(self) -> bool:
        """The credentials have expired, or will soon."""
        return self._renewal.is_needed

    def close(self) -> None:
        """Cancel calls that wait; send later calls once, without a wait."""
        self.cancel()
        self.reopen(0.0)
        self._renewal.close()

    # -- `ObjectStore`

    def check(self, prefix: str = "") -> None:
        self.attempts.call(lambda: self._store.check(prefix))

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        """As `ObjectStore.list`; a retry continues after the last key."""
        last = start_after

        def rest() -> Iterator[ObjectInfo]:
            return self._store.list(prefix, start_after=last, wants=wants)

        for row in self.attempts.rows(rest):
            if row.size_bytes < 0:
                raise StoreError(
                    f"the listing of {self.spec.place} says that {row.key!r} has {row.size_bytes} "
                    "bytes, which no object has; check the store"
                )
            last = row.key
            yield row

    def head(self, key: str) -> ObjectInfo:
        return self.attempts.call(lambda: self._store.head(key))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        """As `ObjectStore.read`; with `if_match`, a retry continues where the body broke."""
        call = self.attempts.begin()

        def open_rest(done: int) -> Reader:
            def rest() -> Reader:
                return self._store.read(
                    key, offset=offset + done, length=length - done, if_match=if_match
                )

            return self.attempts.retry(call, lambda: self.attempts.holding(call, rest))

        release = self.attempts.limiter.release
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
        again: tuple[type[StoreError], ...] = (Throttled, StoreUnavailable)
        if crc32c is None:
            # A journal or a manifest, which is as it should be here.
            crc32c, again = crc32c_of(data), (*again, ChecksumMismatch)
        return self.attempts.call(
            lambda: self._store.put(
                key, data, attributes=attributes, precondition=precondition, crc32c=crc32c
            ),
            again,
        )

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self.attempts.call(lambda: self._store.create_upload(key, attributes), retry_on=())

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        return self.attempts.call(
            lambda: self._store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c)
        )

    def create_copy_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self.attempts.call(
            lambda: _copier(self._store).create_copy_upload(key, attributes), retry_on=()
        )

    def copy_part(self, key: str, upload_id: str, number: int, source: CopySource) -> PartInfo:
        return self.attempts.call(
            lambda: _copier(self._store).copy_part(key, upload_id, number, source)
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
        return self.attempts.call(
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
        self.attempts.call(lambda: self._store.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        """As `ObjectStore.list_uploads`; a retry begins again and yields no upload twice."""
        seen: set[UploadInfo] = set()
        for row in self.attempts.rows(lambda: self._store.list_uploads(prefix)):
            if row not in seen:
                seen.add(row)
                yield row

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        return self.attempts.call(lambda: self._store.list_parts(key, upload_id))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        self.attempts.call(lambda: self._store.delete(key, if_match=if_match))


class RetryingReader(ClosingReader):
    """See `Reader`.

    Args:
        open_rest: takes a permit and opens the range after so many bytes; retries by itself.
        length: of the range, in bytes.
        release: gives the permit back, once the range is closed.
        can_resume: every attempt reads the same version.
    """

    def __init__(
        self,
        open_rest: Callable[[int], Reader],
        release: Callable[[], None],
        *,
        length: int,
        can_resume: bool,
        call: StoreCall,
    ) -> None:
        self._open_rest = open_rest
        self._length = length
        self._release = release
        self._can_resume = can_resume
        self._call = call
        self._done_bytes = 0
        self._reader = open_rest(0)
        # Later answers are of the rest only.
        self.stated = self._reader.stated
        self._has_permit = True
        self._is_closed = False

    @property
    def attributes(self) -> ObjectAttributes | None:
        return self._reader.attributes

    @property
    def not_carried(self) -> tuple[str, ...]:
        return self._reader.not_carried

    def readinto(self, buffer: memoryview) -> int:
        while True:
            try:
                count = self._reader.readinto(buffer)
                if count == 0 and len(buffer) > 0 and self._done_bytes < self._length:
                    raise StoreUnavailable("the body ended before the range did; read it again")
            except (Throttled, StoreUnavailable) as error:
                self._drop()
                if self._can_resume and not self._is_closed:
                    self._call.wait_after(error)
                    self._reader, self._has_permit = self._open_rest(self._done_bytes), True
                if not self._can_resume or self._is_closed:  # Another thread has given it up.
                    self._drop()
                    raise
            else:
                self._done_bytes += count
                return count

    def close(self) -> None:
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        had_permit, self._has_permit = self._has_permit, False
        try:
            self._reader.close()
        finally:
            if had_permit:
                self._release()


def _copier(store: ObjectStore) -> CopiesParts:
    if isinstance(store, CopiesParts):
        return store
    raise StoreError(f"{store.spec.place} does not copy from other buckets", is_permanent=True)
