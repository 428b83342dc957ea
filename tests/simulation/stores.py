"""Stores of a world: in memory, with the faults of real ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from tests import memory_store as memory
from tests.simulation.buckets import WRONG, Bucket, Kind
from tests.simulation.world import World

from skyplane_gateway.common.errors import (
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.common.objects import (
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
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.stores.base import ObjectStore, Reader, Wants
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

T = TypeVar("T")

#: How long a slow request takes.
SLOW_S: Final = 8.0

#: How long late ones take: longer than a receipt is waited for, or than a lead is; and
#: shorter than a fleet lives that nobody asks for anything.
LATE_S: Final = (12.0, 30.0, 50.0)

#: How soon a thread that waits sees that it need not.
_LOOK_S: Final = 0.25

_LEAST_S: Final = 0.002
_MOST_S: Final = 0.02

#: Keys of one page of a listing.
_PAGE: Final = 1000


class FaultyStore:
    """A `MemoryStore` of one process behind the faults of its bucket."""

    def __init__(self, world: World, bucket: Bucket) -> None:
        self._world = world
        self._bucket = bucket
        self._store = memory.MemoryStore(bucket.spec, world.clock, world.rng)
        self.spec = bucket.spec

    @property
    def capabilities(self) -> StoreCapabilities:
        return replace(self._store.capabilities, trusts_checksum=self._bucket.trusts_checksum)

    def _request(self, method: str, key: str, effect: Callable[[Kind | None], T]) -> T:
        """One request: the way there, the effect, the way back.

        Once it has been sent it is carried out, whatever becomes of its sender.
        """
        bucket, world = self._bucket, self._world
        fault = bucket.next_fault(method)
        if fault is not None:
            world.note(f"store {bucket.name}: {fault}: {method} {key!r}")
        answers: list[T] = []
        errors: list[StoreError] = []

        def arrive(wake: Callable[[], None]) -> None:
            try:
                bucket.ensure_taken(method, key)
                _refuse(fault, method, key)
                answers.append(effect(fault))
            except StoreError as error:
                errors.append(error)
            world.after(world.rng.uniform(_LEAST_S, _MOST_S), wake)

        there_s = world.rng.uniform(_LEAST_S, _MOST_S)
        if fault in ("slow", "late"):
            there_s += SLOW_S if fault == "slow" else world.rng.choice(LATE_S)
        world.block(lambda wake: world.after(there_s, partial(arrive, wake)))
        if errors:
            raise errors[0]
        if fault == "lost answer":
            raise StoreUnavailable(f"the answer was lost ({method} {key!r})")
        return answers[0]

    def _distrusted(self, info: ObjectInfo) -> ObjectInfo:
        return info if self._bucket.trusts_checksum else replace(info, crc32c=None)

    # -- `ObjectStore`

    def check(self, prefix: str = "") -> None:
        self._request("check", prefix, lambda _: self._store.check(prefix))

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        while True:
            page = self._request("list", prefix, partial(self._page, prefix, start_after))
            yield from page
            if len(page) < _PAGE:
                return
            start_after = page[-1].key

    def _page(self, prefix: str, after: str | None, _: Kind | None) -> tuple[ObjectInfo, ...]:
        self._bucket.was_listed(prefix)
        rows = islice(self._store.list(prefix, start_after=after), _PAGE)
        return tuple(map(self._distrusted, rows))

    def head(self, key: str) -> ObjectInfo:
        def effect(_: Kind | None) -> ObjectInfo:
            self._bucket.was_headed(key)
            return self._store.head(key)

        return self._distrusted(self._request("head", key, effect))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        def effect(fault: Kind | None) -> Reader:
            reader = self._store.read(key, offset=offset, length=length, if_match=if_match)
            self._bucket.read_bytes += length
            # Without a checksum the bytes are their only witness.
            is_alone = not self._bucket.trusts_checksum
            if is_alone:
                reader.stated = None
            return _FaultyReader(reader, None if fault == WRONG and is_alone else fault)

        return self._request("read", key, effect)

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        def effect(fault: Kind | None) -> ObjectInfo:
            self._bucket.put_bytes[key] += len(data)
            before, info_before = self._bucket.get(key), self._bucket.info(key)
            is_damaged = fault == "corrupt" and len(data) > 0
            try:
                info = self._store.put(
                    key,
                    _flipped(data) if is_damaged else data,
                    attributes=attributes,
                    precondition=precondition,
                    crc32c=None if is_damaged else crc32c,
                )
            except PreconditionFailed:
                # The contract: what is there and is what was sent counts as written.
                if before is None or before.body != bytes(data):
                    raise
                return self._store.head(key)
            if is_damaged:
                self._bucket.damaged.add(key)
                self._bucket.spoilt[key] = _flipped(data)
            self._bucket.was_written(key, before, info_before)
            return info

        return self._distrusted(self._request("put", key, effect))

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        bucket, sender = self._bucket, self._world.thread.process

        def effect(_: Kind | None) -> str:
            upload_id = self._store.create_upload(key, attributes)
            if sender.is_dead and bucket.is_left:
                bucket.orphans.add(upload_id)
            return upload_id

        return self._request("create_upload", key, effect)

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        def effect(fault: Kind | None) -> PartInfo:
            self._bucket.put_bytes[key] += len(data)
            part = self._store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c)
            if fault == "corrupt":
                self._damage(upload_id, number)
            return part

        return self._request("put_part", key, effect)

    def create_copy_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self.create_upload(key, attributes)

    def copy_part(self, key: str, upload_id: str, number: int, source: CopySource) -> PartInfo:
        def effect(fault: Kind | None) -> PartInfo:
            self._bucket.put_bytes[key] += source.length
            part = self._store.copy_part(key, upload_id, number, source)
            if fault == "corrupt":
                self._damage(upload_id, number)
            return part

        return self._request("copy_part", key, effect)

    def _damage(self, upload_id: str, number: int) -> None:
        upload = memory._buckets[self._bucket.name].uploads[upload_id]
        part, body = upload.parts[number]
        upload.parts[number] = (part, _flipped(body))
        self._bucket.damaged.add(upload.key)

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
        # A store that does not vouch for its checksums does not compare them either.
        claimed = crc32c if self._bucket.trusts_checksum else None

        def effect(_: Kind | None) -> ObjectInfo:
            before, info_before = self._bucket.get(key), self._bucket.info(key)
            info = self._store.complete_upload(
                key,
                upload_id,
                parts,
                precondition=precondition,
                size_bytes=size_bytes,
                crc32c=claimed,
            )
            self._bucket.was_written(key, before, info_before)
            return info

        return self._distrusted(self._request("complete_upload", key, effect))

    def abort_upload(self, key: str, upload_id: str) -> None:
        self._request("abort_upload", key, lambda _: self._store.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        yield from self._request(
            "list_uploads", prefix, lambda _: tuple(self._store.list_uploads(prefix))
        )

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        return self._request("list_parts", key, lambda _: self._store.list_parts(key, upload_id))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        def effect(_: Kind | None) -> None:
            there = self._bucket.info(key)
            if there is not None and if_match in (None, there.etag):
                self._bucket.was_deleted(key)
            self._store.delete(key, if_match=if_match)

        self._request("delete", key, effect)

    def close(self) -> None:
        self._store.close()


class _FaultyReader:
    """A body with one byte changed, or cut in half."""

    def __init__(self, reader: Any, fault: Kind | None) -> None:
        self.attributes: ObjectAttributes | None = reader.attributes
        self.not_carried = reader.not_carried
        self.stated = reader.stated
        self._reader = reader
        self._fault = fault
        self._is_spoiled = False

    def readinto(self, buffer: memoryview) -> int:
        if self._fault == "truncated":
            if self._is_spoiled:
                raise StoreUnavailable("the body ended before the range did")
            self._is_spoiled = True
            return int(self._reader.readinto(buffer[: len(buffer) // 2]))
        if self._fault == "ends early":
            if self._is_spoiled:
                return 0
            self._is_spoiled = True
            return int(self._reader.readinto(buffer[: len(buffer) // 2]))
        count = int(self._reader.readinto(buffer))
        if self._fault == "wrong bytes" and count and not self._is_spoiled:
            self._is_spoiled = True
            buffer[0] ^= 1
        return count

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> _FaultyReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse(fault: Kind | None, method: str, key: str) -> None:
    """Raises StoreError where the store does not carry out a request."""
    if fault == "throttled":
        raise Throttled(f"slow down ({method} {key!r})")
    if fault == "unavailable":
        raise StoreUnavailable(f"the store does not answer ({method} {key!r})")
    if fault == "denied":
        raise PermissionDenied(f"{method} of {key!r} is not allowed; grant it")


def _flipped(data: Body) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[len(changed) // 2] ^= 1
    return bytes(changed)


@dataclass(frozen=True, slots=True)
class Buckets:
    """Opens the buckets of a world."""

    world: World
    by_name: dict[str, Bucket] = field(default_factory=dict)
    limiters: dict[tuple[int, str], RateLimiter] = field(default_factory=dict)

    def open(
        self,
        spec: StoreSpec,
        credentials: Credentials | None = None,
        policy: RetryPolicy | None = None,
    ) -> ObjectStore:
        """Replaces `open_store`; every process has its own limiters."""
        name = (self._process(), spec.bucket)
        limiter = self.limiters.get(name)
        if limiter is None:
            limiter = RateLimiter(clock=self.world.clock, pause=self._pause)
            self.limiters[name] = limiter
        return RetryingStore(
            FaultyStore(self.world, self.by_name[spec.bucket]),
            limiter,
            policy=policy,
            clock=self.world.clock,
            pause=self._pause,
            rng=self.world.rng,
        )

    def _process(self) -> int:
        """Whose code runs: that of an event loop, or of a thread."""
        world = self.world
        process = world.thread.process.loop if world.is_in_thread else asyncio.get_running_loop()
        return id(process)

    def _pause(self, ended: threading.Event, seconds: float) -> bool:
        """`threading.Event.wait` in virtual time."""
        until_s = self.world.now + seconds
        while not ended.is_set() and self.world.now < until_s:
            self.world.sleep(min(_LOOK_S, until_s - self.world.now))
        return ended.is_set()
