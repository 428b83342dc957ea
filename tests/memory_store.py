"""A store in the memory of this process, with the full semantics: the kind `memory` of tests.

All stores of one bucket name share their objects. Stored checksums can be trusted.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    NotFound,
    PreconditionFailed,
    StoreError,
)
from skyplane_gateway.common.objects import (
    MIB,
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
from skyplane_gateway.stores import registry
from skyplane_gateway.stores.base import ClosingReader, ObjectStore, Wants, read_exactly
from skyplane_gateway.stores.checksums import Stated, crc32c_of, verify
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.key_rules import check_key

registry._MODULES["memory"] = "tests.memory_store"

_CAPABILITIES = StoreCapabilities(
    trusts_checksum=True,
    min_part_bytes=1,
    max_part_bytes=5 * 1024 * MIB,
    max_parts=10_000,
    max_object_bytes=5 * 1024 * 1024 * MIB,
    server_side_copy="ranges",
)


@dataclass(frozen=True, slots=True)
class _Object:
    info: ObjectInfo
    body: bytes


@dataclass(slots=True)
class _Upload:
    key: str
    attributes: ObjectAttributes
    initiated: float
    parts: dict[int, tuple[PartInfo, bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class _Bucket:
    objects: dict[str, _Object] = field(default_factory=dict)
    uploads: dict[str, _Upload] = field(default_factory=dict)
    versions: Iterator[int] = field(default_factory=lambda: count(1))
    lock: threading.RLock = field(default_factory=threading.RLock)


_buckets: dict[str, _Bucket] = {}


def create_bucket(name: str) -> None:
    """Make an empty bucket, also in place of one of that name."""
    _buckets[name] = _Bucket()


def delete_bucket(name: str) -> None:
    """Delete a bucket with its objects, if there is one."""
    _buckets.pop(name, None)


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> ObjectStore:
    """Called by `open_without_retries`."""
    return MemoryStore(spec)


class MemoryStore:
    """See `ObjectStore`. One lock per bucket; bodies are never changed in place."""

    def __init__(
        self, spec: StoreSpec, clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None
    ) -> None:
        self.spec = spec
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self.capabilities = _CAPABILITIES

    @property
    def _bucket(self) -> _Bucket:
        try:
            return _buckets[self.spec.bucket]
        except KeyError as error:
            raise NotFound(f"there is no memory bucket {self.spec.bucket!r}") from error

    def check(self, prefix: str = "") -> None:
        _ = self._bucket

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        bucket = self._bucket
        with bucket.lock:
            keys = sorted(key for key in bucket.objects if key.startswith(prefix))
        for key in keys:
            if start_after is not None and key <= start_after:
                continue
            found = bucket.objects.get(key)
            if found is not None:
                yield replace(found.info, crc32c=None, attributes=None)

    def head(self, key: str) -> ObjectInfo:
        return self._object(key).info

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> MemoryReader:
        found = self._object(key)
        if if_match is not None and if_match != found.info.etag:
            raise PreconditionFailed(f"{key!r} is no longer the version {if_match}; list it again")
        if offset < 0 or length < 0 or offset + length > found.info.size_bytes:
            raise StoreError(
                f"bytes {offset}+{length} lie outside {key!r} ({found.info.size_bytes} bytes)",
                is_permanent=True,
            )
        body = memoryview(found.body)[offset : offset + length]
        reader = MemoryReader(body, found.info.attributes, found.info.not_carried)
        if length == found.info.size_bytes:
            reader.stated = Stated.crc32c(found.info.crc32c)
        return reader

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        check_key(key)
        body = bytes(data)
        if crc32c is not None:
            verify(f"the body of {key!r}", body, crc32c)
        return self._publish(key, body, attributes or ObjectAttributes(), precondition)

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        check_key(key)
        upload_id = self._rng.randbytes(16).hex()
        bucket = self._bucket
        with bucket.lock:
            begun_s = self._clock.wall()
            bucket.uploads[upload_id] = _Upload(key, attributes or ObjectAttributes(), begun_s)
        return upload_id

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        body = bytes(data)
        verify(f"part {number} of {key!r}", body, crc32c)
        part = PartInfo(number, f"{number}-{crc32c:08x}-{len(body)}", len(body), crc32c)
        with self._bucket.lock:
            self._upload(key, upload_id).parts[number] = (part, body)
        return part

    def create_copy_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self.create_upload(key, attributes)

    def copy_part(self, key: str, upload_id: str, number: int, source: CopySource) -> PartInfo:
        reader = MemoryStore(source.store).read(
            source.key, offset=source.offset, length=source.length, if_match=source.etag
        )
        body = bytes(read_exactly(reader, source.length))
        return self.put_part(
            key, upload_id, number, body, offset=source.offset, crc32c=crc32c_of(body)
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
        bucket = self._bucket
        with bucket.lock:
            upload = self._upload(key, upload_id)
            body = _assemble(upload, parts)
            if len(body) != size_bytes:
                raise StoreError(
                    f"the parts of {key!r} have {len(body)} bytes, not the {size_bytes} expected"
                )
            if crc32c is not None and crc32c_of(body) != crc32c:
                raise ChecksumMismatch(f"the parts of {key!r} do not have CRC32C {crc32c:08x}")
            info = self._publish(key, body, upload.attributes, precondition)
            del bucket.uploads[upload_id]
            return info

    def abort_upload(self, key: str, upload_id: str) -> None:
        bucket = self._bucket
        with bucket.lock:
            upload = bucket.uploads.get(upload_id)
            if upload is not None and upload.key == key:
                del bucket.uploads[upload_id]

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        bucket = self._bucket
        with bucket.lock:
            uploads = sorted(bucket.uploads.items())
        for upload_id, upload in uploads:
            if upload.key.startswith(prefix):
                yield UploadInfo(upload.key, upload_id, upload.initiated)

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        with self._bucket.lock:
            parts = self._upload(key, upload_id).parts
            return tuple(parts[number][0] for number in sorted(parts))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        bucket = self._bucket
        with bucket.lock:
            there = bucket.objects.get(key)
            if there is not None and if_match not in (None, there.info.etag):
                raise PreconditionFailed(f"{key!r} is no longer the version {if_match}")
            bucket.objects.pop(key, None)

    def close(self) -> None:
        """Nothing is held open."""

    def _object(self, key: str) -> _Object:
        try:
            return self._bucket.objects[key]
        except KeyError as error:
            raise NotFound(f"there is no {key!r} in {self.spec.bucket!r}") from error

    def _upload(self, key: str, upload_id: str) -> _Upload:
        upload = self._bucket.uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise NotFound(f"there is no open upload {upload_id} of {key!r}; begin a new one")
        return upload

    def _publish(
        self, key: str, body: bytes, attributes: ObjectAttributes, precondition: Precondition
    ) -> ObjectInfo:
        bucket = self._bucket
        with bucket.lock:
            _check_precondition(key, bucket.objects.get(key), precondition)
            info = ObjectInfo(
                key=key,
                size_bytes=len(body),
                etag=f'"{next(bucket.versions):08x}"',
                last_modified=self._clock.wall(),
                crc32c=crc32c_of(body),
                attributes=attributes,
            )
            bucket.objects[key] = _Object(info, body)
            return info


class MemoryReader(ClosingReader):
    """See `Reader`."""

    def __init__(
        self,
        rest: memoryview,
        attributes: ObjectAttributes | None,
        not_carried: tuple[str, ...] = (),
    ) -> None:
        self.attributes = attributes
        self.not_carried = not_carried
        self._rest = rest

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def close(self) -> None:
        self._rest = self._rest[:0]


def _assemble(upload: _Upload, parts: Sequence[PartInfo]) -> bytes:
    bodies = []
    for part in parts:
        stored = upload.parts.get(part.number)
        if stored is None or stored[0].etag != part.etag:
            raise ChecksumMismatch(
                f"part {part.number} of {upload.key!r} is not stored as {part.etag}; "
                "upload the object again"
            )
        bodies.append(stored[1])
    return b"".join(bodies)


def _check_precondition(key: str, there: _Object | None, precondition: Precondition) -> None:
    if precondition.if_absent and there is not None:
        raise PreconditionFailed(f"there is already an object {key!r}")
    wanted = precondition.if_match
    if wanted is not None and (there is None or there.info.etag != wanted):
        raise PreconditionFailed(f"{key!r} is no longer the version {wanted}; list it again")
