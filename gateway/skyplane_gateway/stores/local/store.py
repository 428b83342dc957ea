"""Files below a root directory as objects (kind `file`).

An object appears by a rename or a hard link of a finished, synced file. Content type,
user metadata, modes and modification times are not kept; with the option `content_type=guessed`
a file that is read has the content type that its name stands for. There is no stored checksum:
whoever wants the bytes verified reads them again.
"""

from __future__ import annotations

import fcntl
import os
import random
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.errors import (
    ConfigurationInvalid,
    InvalidKey,
    NotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
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
from skyplane_gateway.stores.base import ObjectStore, Wants
from skyplane_gateway.stores.checksums import crc32c_of_file, verify
from skyplane_gateway.stores.content_types import GUESSED_TYPE, guessed_type
from skyplane_gateway.stores.local.errors import mapped
from skyplane_gateway.stores.local.paths import TEMPORARY, etag_of, info_of, path_of, root_of, walk
from skyplane_gateway.stores.local.uploads import OpenUpload, find, write_all

_CAPABILITIES = StoreCapabilities(
    trusts_checksum=False,
    ordered_listing=True,
    supports_metadata=False,
    min_part_bytes=1,
    max_part_bytes=1 << 40,
    max_parts=100_000,
    max_object_bytes=(1 << 63) - 1,
)


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> ObjectStore:
    """What `open_store` calls; the process's own user is the identity."""
    return LocalStore(spec)


class LocalStore:
    """See `ObjectStore`. Holds nothing open between calls."""

    def __init__(
        self, spec: StoreSpec, clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None
    ) -> None:
        others = ", ".join(f"{row[0]}={row[1]}" for row in spec.options if row != GUESSED_TYPE)
        if others:
            raise ConfigurationInvalid(f"a file store has no options, but was given {others}")
        self._guesses = GUESSED_TYPE in spec.options
        self.spec = spec
        self.capabilities = _CAPABILITIES
        self._root = root_of(spec.bucket)
        self._clock = clock
        self._rng = rng or random.SystemRandom()

    def check(self, prefix: str = "") -> None:
        with mapped(f"listing {self._root}"), os.scandir(self._root) as entries:
            next(entries, None)

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        return walk(self._root, prefix, start_after, wants or _everything)

    def head(self, key: str) -> ObjectInfo:
        path = path_of(self._root, key)
        with mapped(f"looking at {path}"):
            info = info_of(key, _status(path, key))
        return replace(info, attributes=self._attributes_of(key))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> LocalReader:
        path = path_of(self._root, key)
        what = f"reading {path}"
        with mapped(what):
            _status(path, key)
            # Without O_NONBLOCK a pipe put in the file's place would hold the thread.
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        reader = LocalReader(file, offset, length, what, self._attributes_of(key))
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
        if crc32c is not None:
            verify(f"the body of {key!r}", data, crc32c)
        draft = path.parent / (TEMPORARY + self._rng.randbytes(16).hex())
        with mapped(f"writing {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                _write_synced(draft, data)
                return _publish(draft, key, path, precondition)
            finally:
                draft.unlink(missing_ok=True)

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        path = path_of(self._root, key)
        if key.endswith("/"):
            raise InvalidKey(f"{key!r} names a directory, which holds no bytes; rename the object")
        with mapped(f"beginning an upload to {path}"):
            return OpenUpload.create(key, path, self._rng, self._clock).upload_id

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
            done = _completed_before(upload, size_bytes, crc32c)
            if done is None:
                upload.require(parts, size_bytes)
                with upload.finished(self._rng) as file:
                    _sync(file)
                    done = _publish(file, key, upload.target, precondition)
            upload.discard()
            return done

    def abort_upload(self, key: str, upload_id: str) -> None:
        with suppress(NotFound), mapped(f"aborting an upload to {key!r}"):
            self._upload(key, upload_id).discard()

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        with mapped(f"listing the open uploads of {prefix!r} below {self._root}"):
            yield from find(self._root, prefix)

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        upload = self._upload(key, upload_id)
        with mapped(f"listing the parts of {upload.target}"):
            stored = upload.parts()
        return tuple(stored[number].part for number in sorted(stored))

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        path = path_of(self._root, key)
        # No such object is fine; so is a directory that still has objects below it.
        with suppress(NotFound, InvalidKey), mapped(f"deleting {path}"):
            if key.endswith("/"):
                path.rmdir()
            elif if_match is not None and path.exists():
                with _locked(path.parent):
                    _require_version(path, if_match)
                    path.unlink()
            elif not path.is_dir():
                path.unlink()

    def close(self) -> None:
        """Nothing is held open."""

    def _attributes_of(self, key: str) -> ObjectAttributes | None:
        return ObjectAttributes(content_type=guessed_type(key)) if self._guesses else None

    def _upload(self, key: str, upload_id: str) -> OpenUpload:
        return OpenUpload.named(key, upload_id, path_of(self._root, key))


class LocalReader:
    """See `Reader`. Sees at the end whether the file was changed while it was read."""

    def __init__(
        self,
        file: int,
        offset: int,
        length: int,
        what: str,
        attributes: ObjectAttributes | None = None,
    ) -> None:
        self.attributes = attributes
        self.not_carried: tuple[str, ...] = ()
        self._file = file
        self._offset = offset
        self._left = length
        self._what = what
        self._etag = etag_of(os.fstat(file))

    def require(self, key: str, if_match: str | None) -> None:
        """See that the open file is the pinned version and holds the range."""
        if if_match is not None and if_match != self._etag:
            raise self._changed()
        size = info_of(key, os.fstat(self._file)).size_bytes
        if self._offset < 0 or self._left < 0 or self._offset + self._left > size:
            raise StoreError(
                f"{self._what}: bytes {self._offset}+{self._left} lie outside its {size} bytes",
                is_permanent=True,
            )

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0 or len(buffer) == 0:
            return 0
        with mapped(self._what):
            count = os.preadv(self._file, [buffer[: self._left]], self._offset)
        self._offset += count
        self._left -= count
        if self._left == 0 or count == 0:
            if etag_of(os.fstat(self._file)) != self._etag:
                raise self._changed()
            if count == 0:
                raise StoreUnavailable(f"{self._what}: the file ended {self._left} bytes early")
        return count

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _changed(self) -> PreconditionFailed:
        return PreconditionFailed(f"{self._what}: the file was changed; list it again")


def _everything(key: str) -> bool:
    return True


def _status(path: Path, key: str) -> os.stat_result:
    """The object's status: a directory for `x/`, else a regular file.

    Raises:
        NotFound: something else is there, or nothing.
    """
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
        path.mkdir(parents=True, exist_ok=True)
        return info_of(key, path.stat())


def _write_synced(draft: Path, data: Body) -> None:
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_all(file, data, 0)
        os.fsync(file)
    finally:
        os.close(file)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _completed_before(upload: OpenUpload, size_bytes: int, crc32c: int | None) -> ObjectInfo | None:
    if upload.draft.exists():
        return None
    try:
        status = upload.target.stat()
    except FileNotFoundError as error:
        raise upload.gone() from error
    if not upload.became(status, size_bytes):
        raise upload.gone()
    # File systems give the inode of a file that is gone to another one.
    if crc32c is not None and crc32c_of_file(upload.target) != crc32c:
        raise upload.gone()
    return info_of(upload.key, status)


def _publish(draft: Path, key: str, path: Path, precondition: Precondition) -> ObjectInfo:
    """Give the finished file its name, whole and under the precondition."""
    with _locked(path.parent) as folder:
        if path.is_dir():
            raise InvalidKey(f"cannot write {path}: a directory has that name")
        if precondition.if_absent:
            _link(draft, path)
        else:
            _require_version(path, precondition.if_match)
            draft.rename(path)
        os.fsync(folder)
        return info_of(key, path.stat())


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold off other writers of ours while a version is compared and replaced.

    A best effort: programs that take no lock, and some network file systems, are not
    held off.
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _link(draft: Path, path: Path) -> None:
    """A hard link never replaces what is there, which a rename would."""
    try:
        os.link(draft, path)
    except FileExistsError as error:
        # A crash after the link leaves both names; then it is ours already.
        if not os.path.samestat(draft.stat(), path.lstat()):
            raise PreconditionFailed(f"there is already a file {path}") from error
    draft.unlink()


def _require_version(path: Path, if_match: str | None) -> None:
    if if_match is None:
        return
    try:
        found = etag_of(path.stat())
    except FileNotFoundError as error:
        raise PreconditionFailed(f"{path}, which was to be replaced, is gone") from error
    if found != if_match:
        raise PreconditionFailed(f"{path} is no longer the version {if_match}; list it again")
