"""Files below a root directory as objects (kind `file`).

An object appears by a rename or a hard link of a finished, synced file. Content type, user
metadata and modes are not kept. A time in the user metadata `mtime` becomes that of the file.

With the option `content_type=guessed` a read guesses the content type from the name, with
`mtime=kept` it gives the file's time as user metadata. There is no stored checksum: to verify the
bytes, read them again.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    InvalidKey,
    NotFound,
    PreconditionFailed,
    StoreError,
)
from skyplane_gateway.common.mtime import KEPT_TIME, mtime_ns_of, with_mtime
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
from skyplane_gateway.stores.base import ObjectStore, RangeReader, Wants
from skyplane_gateway.stores.checksums import require_sum, verify
from skyplane_gateway.stores.content_types import GUESSED_TYPE, guessed_type
from skyplane_gateway.stores.local.error_mapping import mapped
from skyplane_gateway.stores.local.listing import walk
from skyplane_gateway.stores.local.paths import TEMPORARY, etag_of, info_of, path_of, root_of
from skyplane_gateway.stores.local.publish import (
    locked,
    make_folders,
    publish,
    require_version,
    sync,
    tidy,
    write_synced,
)
from skyplane_gateway.stores.local.uploads import LocalUpload, find_uploads

_CAPABILITIES = StoreCapabilities(
    trusts_checksum=False,
    min_part_bytes=1,
    max_part_bytes=1 << 40,
    max_parts=100_000,
    max_object_bytes=(1 << 63) - 1,
)


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> ObjectStore:
    """Called by `open_without_retries`. The identity is the process's user."""
    return LocalStore(spec)


class LocalStore:
    """See `ObjectStore`. Holds nothing open between calls."""

    def __init__(self, spec: StoreSpec) -> None:
        known = (GUESSED_TYPE, KEPT_TIME)
        unknown = ", ".join(f"{row[0]}={row[1]}" for row in spec.options if row not in known)
        if unknown:
            raise ConfigurationInvalid(f"a file store has no options, but was given {unknown}")
        self._guesses = GUESSED_TYPE in spec.options
        self._tells_time = KEPT_TIME in spec.options
        self.spec = spec
        self.capabilities = _CAPABILITIES
        self._root = root_of(spec.bucket)
        self._rng = random.SystemRandom()

    def check(self, prefix: str = "") -> None:
        with mapped(f"listing {self._root}"), os.scandir(self._root) as entries:
            next(entries, None)

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        return walk(self._root, prefix, start_after, wants or (lambda _: True))

    def head(self, key: str) -> ObjectInfo:
        path = path_of(self._root, key)
        with mapped(f"looking at {path}"):
            status = _status(path, key)
        return replace(info_of(key, status), attributes=self._attributes_of(key, status))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> LocalReader:
        path = path_of(self._root, key)
        what = f"reading {path}"
        with mapped(what):
            _status(path, key)
            # Without O_NONBLOCK a pipe of that name would block the thread.
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        attributes = self._attributes_of(key, os.fstat(file))
        reader = LocalReader(file, offset, length, what, attributes)
        try:
            reader.require(key, if_match)
        except StoreError:
            reader.close()
            raise
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
        path = path_of(self._root, key)
        if key.endswith("/"):
            return _make_directory(key, path, data)
        draft = path.parent / (TEMPORARY + self._rng.randbytes(16).hex())
        with mapped(f"writing {path}"):
            make_folders(path.parent)
            try:
                found = write_synced(draft, data)
                require_sum(f"the body of {key!r}", found, found if crc32c is None else crc32c)
                return publish(draft, key, path, precondition, mtime_ns_of(attributes))
            finally:
                tidy(draft)

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        path = path_of(self._root, key)
        if key.endswith("/"):
            raise InvalidKey(f"{key!r} names a directory, which holds no bytes; rename the object")
        with mapped(f"beginning an upload to {path}"):
            mtime_ns = mtime_ns_of(attributes)
            return LocalUpload.create(key, path, self._rng, SYSTEM_CLOCK, mtime_ns).upload_id

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        upload = self._upload(key, upload_id)
        verify(f"part {number} of {key!r}", data, crc32c)
        with mapped(f"writing part {number} of {upload.target}"):
            return upload.write(number, data, offset, crc32c)

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
        upload = self._upload(key, upload_id)
        with mapped(f"completing {upload.target}"):
            upload.require(parts, size_bytes)
            with upload.finished(self._rng) as file:
                sync(file)
                mtime_ns = upload.mtime_ns()
                done = publish(file, key, upload.target, precondition, mtime_ns)
            return replace(done, leftover=upload.tidy())

    def abort_upload(self, key: str, upload_id: str) -> None:
        with suppress(NotFound), mapped(f"aborting an upload to {key!r}"):
            self._upload(key, upload_id).discard()

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        with mapped(f"listing the open uploads of {prefix!r} below {self._root}"):
            yield from find_uploads(self._root, prefix)

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        upload = self._upload(key, upload_id)
        with mapped(f"listing the parts of {upload.target}"):
            stored = upload.parts()
        return tuple(stored[number] for number in sorted(stored))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        path = path_of(self._root, key)
        # No such object is fine, and a directory with objects below it stays.
        with suppress(NotFound, InvalidKey), mapped(f"deleting {path}"):
            if key.endswith("/"):
                path.rmdir()
            elif if_match is not None and path.exists():
                with locked(path.parent):
                    require_version(path, if_match)
                    path.unlink()
            elif not path.is_dir():
                path.unlink()

    def close(self) -> None:
        """Nothing is held open."""

    def _attributes_of(self, key: str, status: os.stat_result) -> ObjectAttributes | None:
        if not (self._guesses or self._tells_time):
            return None
        found = ObjectAttributes(content_type=guessed_type(key) if self._guesses else None)
        return with_mtime(found, status.st_mtime_ns) if self._tells_time else found

    def _upload(self, key: str, upload_id: str) -> LocalUpload:
        return LocalUpload.named(key, upload_id, path_of(self._root, key))


class LocalReader(RangeReader[int]):
    """See `Reader`. Checks at the end that the file did not change during the read."""

    def __init__(
        self,
        file: int,
        offset: int,
        length: int,
        what: str,
        attributes: ObjectAttributes | None = None,
    ) -> None:
        super().__init__(file, length, what, attributes)
        self._offset = offset
        self._etag = etag_of(os.fstat(file))

    def require(self, key: str, if_match: str | None) -> None:
        """Check that the open file is the pinned version and holds the range."""
        if if_match is not None and if_match != self._etag:
            raise self._changed()
        size = info_of(key, os.fstat(self._source)).size_bytes
        if self._offset < 0 or self._remaining < 0 or self._offset + self._remaining > size:
            raise StoreError(
                f"{self._what}: bytes {self._offset}+{self._remaining} lie outside its "
                f"{size} bytes",
                is_permanent=True,
            )

    def _fill(self, view: memoryview) -> int:
        with mapped(self._what):
            count = os.preadv(self._source, [view], self._offset)
        self._offset += count
        if count in (0, self._remaining) and etag_of(os.fstat(self._source)) != self._etag:
            raise self._changed()
        return count

    def close(self) -> None:
        if self._source >= 0:
            os.close(self._source)
            self._source = -1

    def _changed(self) -> PreconditionFailed:
        return PreconditionFailed(f"{self._what}: the file was changed; list it again")


def _status(path: Path, key: str) -> os.stat_result:
    """The status of a directory for `x/`, else of a regular file. Raises NotFound otherwise."""
    try:
        status = path.stat()
    except NotADirectoryError as error:
        raise NotFound(f"there is no {path}: a part of it is a file") from error
    fits = stat.S_ISDIR if key.endswith("/") else stat.S_ISREG
    if not fits(status.st_mode):
        kind = "directory" if key.endswith("/") else "regular file"
        raise NotFound(f"{path} is no {kind}")
    return status


def _make_directory(key: str, path: Path, data: Body) -> ObjectInfo:
    if len(data) > 0:
        raise InvalidKey(f"{key!r} names a directory, which holds no bytes; rename the object")
    with mapped(f"making the directory {path}"):
        make_folders(path)
        return info_of(key, path.stat())
