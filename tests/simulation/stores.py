"""Buckets in memory that have the faults of real stores, and keep accounts."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, TypeVar

from tests.simulation.world import World

from skyplane_gateway.errors import (
    PermissionDenied,
    PreconditionFailed,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.stores import memory
from skyplane_gateway.stores.base import (
    UNCONDITIONAL,
    Body,
    Credentials,
    ObjectAttributes,
    ObjectInfo,
    ObjectStore,
    PartInfo,
    Precondition,
    Reader,
    StoreCapabilities,
    StoreSpec,
    UploadInfo,
)
from skyplane_gateway.stores.limited import LimitedStore
from skyplane_gateway.stores.limiter import AdaptiveLimiter

T = TypeVar("T")

Kind = Literal[
    "throttled",
    "unavailable",
    "lost answer",
    "slow",
    "wrong bytes",
    "truncated",
    "corrupt",
    "denied",
]

#: How long a slow request takes.
SLOW_S: Final = 8.0

#: How soon a thread that waits sees that it need not.
_LOOK_S: Final = 0.25

_LEAST_S: Final = 0.002
_MOST_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Injected:
    """Requests number `first` to `first + count - 1` of a method have a fault."""

    method: str
    first: int
    count: int
    kind: Kind


@dataclass(slots=True)
class Bucket:
    """One bucket of a world: its faults, and what was done to it.

    Attributes:
        trusts_checksum: whether the store vouches for its checksums.
        put_bytes: key -> bytes sent there, whole objects and parts.
        versions: key -> every body that a user has given it.
        may_replace: whether the rule lets a transfer replace a user's objects at all.
        wrongs: what was done to a user's object against the rule.
    """

    world: World
    name: str
    trusts_checksum: bool = True
    faults: list[Injected] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    put_bytes: Counter[str] = field(default_factory=Counter)
    read_bytes: int = 0
    versions: dict[str, list[bytes]] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    may_replace: bool = True
    wrongs: list[str] = field(default_factory=list)
    _written_s: dict[str, float] = field(default_factory=dict)
    _listed_s: float = -1.0
    #: Key -> every body that a transfer has given it.
    landed: dict[str, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        memory.create_bucket(self.name)

    @property
    def spec(self) -> StoreSpec:
        return StoreSpec("memory", self.name)

    # -- what a user does beside the transfer

    def write(self, key: str, body: bytes) -> None:
        memory.MemoryStore(self.spec).put(key, body)
        self.versions.setdefault(key, []).append(body)
        self._written_s[key] = self.world.now

    # -- what a transfer does

    def was_listed(self) -> None:
        self._listed_s = self.world.now

    def before_write(self, key: str) -> bytes | None:
        found = memory._buckets[self.name].objects.get(key)
        return None if found is None else found.body

    def was_written(self, key: str, before: bytes | None) -> None:
        """See that no user's object was replaced that the transfer may not have seen."""
        self.landed.setdefault(key, []).append(memory._buckets[self.name].objects[key].body)
        if before is None or before not in self.versions.get(key, []):
            return
        if not self.may_replace:
            self.wrongs.append(f"{key!r} of somebody else was replaced against the rule")
        elif self._listed_s < self._written_s[key]:
            self.wrongs.append(f"{key!r} of somebody else was replaced unseen")

    def remove(self, key: str) -> None:
        memory.MemoryStore(self.spec).delete(key)

    def content(self) -> dict[str, bytes]:
        return {key: found.body for key, found in memory._buckets[self.name].objects.items()}

    def open_uploads(self) -> dict[str, str]:
        """Upload id -> key."""
        uploads = memory._buckets[self.name].uploads
        return {upload_id: upload.key for upload_id, upload in uploads.items()}

    def drop(self) -> None:
        memory.delete_bucket(self.name)

    # -- faults

    def next_fault(self, method: str) -> Kind | None:
        self.requests[method] += 1
        number = self.requests[method]
        for fault in self.faults:
            if fault.method == method and 0 <= number - fault.first < fault.count:
                return fault.kind
        return None


class FaultyStore:
    """A `MemoryStore` of one process behind the faults of its bucket."""

    def __init__(self, world: World, bucket: Bucket) -> None:
        self._world = world
        self._bucket = bucket
        self._store = memory.MemoryStore(bucket.spec)
        self.spec = bucket.spec

    @property
    def capabilities(self) -> StoreCapabilities:
        return replace(self._store.capabilities, trusts_checksum=self._bucket.trusts_checksum)

    def _request(self, method: str, key: str, effect: Callable[[Kind | None], T]) -> T:
        """One request: the way there, the effect, the way back."""
        fault = self._bucket.next_fault(method)
        if fault is not None:
            self._world.note(f"store {self._bucket.name}: {fault}: {method} {key!r}")
        rng = self._world.rng
        self._world.sleep(rng.uniform(_LEAST_S, _MOST_S))
        if fault == "throttled":
            raise Throttled(f"slow down ({method} {key!r})")
        if fault == "unavailable":
            raise StoreUnavailable(f"the store does not answer ({method} {key!r})")
        if fault == "denied":
            raise PermissionDenied(f"{method} of {key!r} is not allowed; grant it")
        if fault == "slow":
            self._world.sleep(SLOW_S)
        result = effect(fault)
        self._world.sleep(rng.uniform(_LEAST_S, _MOST_S))
        if fault == "lost answer":
            raise StoreUnavailable(f"the answer was lost ({method} {key!r})")
        return result

    def _distrusted(self, info: ObjectInfo) -> ObjectInfo:
        return info if self._bucket.trusts_checksum else replace(info, crc32c=None)

    # -- `ObjectStore`

    def check(self, prefix: str = "") -> None:
        self._request("check", prefix, lambda _: self._store.check(prefix))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        while True:
            page = self._request("list", prefix, partial(self._page, prefix, start_after))
            yield from page
            if len(page) < _PAGE:
                return
            start_after = page[-1].key

    def _page(self, prefix: str, after: str | None, _: Kind | None) -> tuple[ObjectInfo, ...]:
        self._bucket.was_listed()
        return tuple(islice(self._store.list(prefix, start_after=after), _PAGE))

    def head(self, key: str) -> ObjectInfo:
        return self._distrusted(self._request("head", key, lambda _: self._store.head(key)))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        def effect(fault: Kind | None) -> Reader:
            reader = self._store.read(key, offset=offset, length=length, if_match=if_match)
            self._bucket.read_bytes += length
            return _FaultyReader(reader, fault)

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
            before = self._bucket.before_write(key)
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
                if before != bytes(data):
                    raise
                return self._store.head(key)
            self._bucket.was_written(key, before)
            if is_damaged:
                self._bucket.damaged.add(key)
            return info

        return self._distrusted(self._request("put", key, effect))

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self._request(
            "create_upload", key, lambda _: self._store.create_upload(key, attributes)
        )

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
            before = self._bucket.before_write(key)
            info = self._store.complete_upload(
                key,
                upload_id,
                parts,
                precondition=precondition,
                size_bytes=size_bytes,
                crc32c=claimed,
            )
            self._bucket.was_written(key, before)
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

    def delete(self, key: str) -> None:
        self._request("delete", key, lambda _: self._store.delete(key))

    def close(self) -> None:
        self._store.close()


#: Keys of one page of a listing.
_PAGE: Final = 1000


class _FaultyReader:
    """A body with one byte changed, or cut in half."""

    def __init__(self, reader: Any, fault: Kind | None) -> None:
        self.attributes: ObjectAttributes | None = reader.attributes
        self._reader = reader
        self._fault = fault
        self._is_spoiled = False

    def readinto(self, buffer: memoryview) -> int:
        if self._fault == "truncated":
            if self._is_spoiled:
                raise StoreUnavailable("the body ended before the range did")
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
    limiters: dict[tuple[int, str], AdaptiveLimiter] = field(default_factory=dict)

    def open(self, spec: StoreSpec, credentials: Credentials | None = None) -> ObjectStore:
        """Stands where `open_store` does."""
        return FaultyStore(self.world, self.by_name[spec.bucket])

    def open_limited(self, spec: StoreSpec, credentials: Credentials | None = None) -> ObjectStore:
        """Stands where `open_limited` does; every process has limiters of its own."""
        name = (id(asyncio.get_running_loop()), spec.bucket)
        limiter = self.limiters.get(name)
        if limiter is None:
            limiter = AdaptiveLimiter(clock=self._clock, pause=self._pause)
            self.limiters[name] = limiter
        return LimitedStore(
            self.open(spec),
            limiter,
            spec=spec,
            clock=self._clock,
            pause=self._pause,
            fraction=self.world.rng.random,
        )

    def _clock(self) -> float:
        return self.world.now

    def _pause(self, ended: threading.Event, seconds: float) -> bool:
        """`threading.Event.wait` in virtual time."""
        until_s = self.world.now + seconds
        while not ended.is_set() and self.world.now < until_s:
            self.world.sleep(min(_LOOK_S, until_s - self.world.now))
        return ended.is_set()
