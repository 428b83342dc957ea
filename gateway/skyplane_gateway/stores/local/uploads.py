"""Multipart uploads on a file system: one sparse file and one log of its parts.

Both lie beside the destination, so that publishing is a rename within one directory.
`.skyplane-upload-<id>` takes the bytes at their offsets, from any process; each part
is on the disk before its line is appended to `.skyplane-upload-<id>.parts`, so a line
is proof of the part. The upload id ends with the file's inode, which the finished
object keeps: by that and the checksum of the whole a repeated completion knows its own
object.

Because it keeps the inode, whoever has the file open could still write to the finished
object. So writers share a lock on it and look whether it still is the upload's; whoever
completes has the lock alone, and publishes a copy if a writer does not let go of it, as
one that sleeps does not. A best effort where a file system knows no locks.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skyplane_gateway.clock import Clock
from skyplane_gateway.errors import ChecksumMismatch, NotFound, StoreError, StoreUnavailable
from skyplane_gateway.objects import Body, PartInfo, UploadInfo
from skyplane_gateway.stores.local.errors import mapped
from skyplane_gateway.stores.local.paths import TEMPORARY, leads_back, root_of

_LOG_SUFFIX = ".parts"
_UPLOAD_ID = re.compile(r"[0-9a-f]{32}-[0-9]+")
#: The folder that journals lie in, whatever is above it.
_JOURNALS = ".skyplane"
_TOKEN = re.compile(r"[0-9a-f]{32}")
#: How often, and after which pause, a completion looks whether the last writer has let go:
#: together longer than a part takes to reach a disk.
_LOOKS: Final = 200
_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line of the log: where a part lies."""

    part: PartInfo
    offset: int


@dataclass(frozen=True, slots=True)
class OpenUpload:
    """The two files of an upload to `target`."""

    key: str
    upload_id: str
    target: Path

    @classmethod
    def create(cls, key: str, target: Path, rng: random.Random, clock: Clock) -> OpenUpload:
        """Make the files. Raises OSError."""
        token = rng.randbytes(16).hex()
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.parent / (TEMPORARY + token)
        draft.touch(exist_ok=False)
        upload_id = f"{token}-{draft.stat().st_ino}"
        upload = cls(key, upload_id, target)
        header = {"key": key, "upload_id": upload_id, "initiated": clock.wall()}
        upload.log.write_text(json.dumps(header) + "\n")
        return upload

    @classmethod
    def named(cls, key: str, upload_id: str, target: Path) -> OpenUpload:
        """The upload that `create` called so; not yet seen to exist.

        Raises:
            NotFound: no upload was ever called that.
        """
        upload = cls(key, upload_id, target)
        if _UPLOAD_ID.fullmatch(upload_id) is None:
            raise upload.gone()
        return upload

    @property
    def draft(self) -> Path:
        return self.target.parent / (TEMPORARY + self.upload_id.split("-", 1)[0])

    @property
    def log(self) -> Path:
        return self.draft.with_name(self.draft.name + _LOG_SUFFIX)

    def write(self, number: int, data: Body, offset: int, crc32c: int) -> PartInfo:
        """Put one part on the disk, then say so in the log.

        Raises:
            NotFound: the upload is over. OSError: as the file system says.
        """
        part = PartInfo(number, f"{offset}-{len(data)}-{crc32c:08x}", len(data), crc32c)
        file = self._open()
        try:
            if not _lock(file, fcntl.LOCK_SH):
                raise StoreUnavailable(f"the upload of {self.key!r} is being completed; try again")
            self._require_draft(file)
            write_all(file, data, offset)
            os.fdatasync(file)
            self._note(number, data, offset, crc32c)
        finally:
            os.close(file)
        return part

    def _open(self) -> int:
        try:
            # To read as well: some network file systems give no shared lock without.
            return os.open(self.draft, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self.gone() from error

    def _require_draft(self, file: int) -> None:
        """See that the open file is the upload's, and has no other name by now."""
        status = os.fstat(file)
        try:
            is_draft = os.path.samestat(status, self.draft.stat())
        except FileNotFoundError as error:
            raise self.gone() from error
        if not is_draft or status.st_nlink != 1:
            raise self.gone()

    def _note(self, number: int, data: Body, offset: int, crc32c: int) -> None:
        # The leading newline ends a line that a crash cut short.
        line = f"\n{json.dumps([number, offset, len(data), crc32c])}\n"
        try:
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self.gone() from error
        try:
            # One short append is one line, whoever else appends.
            os.write(log, line.encode())
        finally:
            os.close(log)

    @contextmanager
    def finished(self, rng: random.Random) -> Iterator[Path]:
        """The file to publish: nobody writes to it, now or later.

        Raises:
            NotFound: the upload is over. OSError: as the file system says.
        """
        file = self._open()
        try:
            if _lock_soon(file):
                yield self.draft
                return
        finally:
            os.close(file)
        copy = self.draft.with_name(TEMPORARY + rng.randbytes(16).hex())
        try:
            shutil.copyfile(self.draft, copy)
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def parts(self) -> dict[int, _Entry]:
        """The stored parts by number; a later line replaces an earlier one."""
        found: dict[int, _Entry] = {}
        try:
            lines = self.log.read_text().splitlines()[1:]
        except FileNotFoundError as error:
            raise self.gone() from error
        for line in lines:
            try:
                number, offset, size, crc32c = json.loads(line)
            except ValueError:
                # Empty, or cut short by a crash: then the part was never acknowledged.
                continue
            part = PartInfo(number, f"{offset}-{size}-{crc32c:08x}", size, crc32c)
            found[number] = _Entry(part, offset)
        return found

    def require(self, parts: Sequence[PartInfo], size_bytes: int) -> None:
        """See that the named parts are stored and cover the object without a gap.

        Raises:
            ChecksumMismatch: names the part.
            StoreError: the size is another one.
        """
        stored = self.parts()
        end = 0
        for part in parts:
            entry = stored.get(part.number)
            if entry is None or entry.part.etag != part.etag or entry.offset != end:
                raise ChecksumMismatch(
                    f"part {part.number} of {self.key!r} is not stored as {part.etag} at {end}; "
                    "upload the object again"
                )
            end += entry.part.size_bytes
        if end != size_bytes or self.draft.stat().st_size != size_bytes:
            raise StoreError(
                f"the parts of {self.key!r} have {end} bytes, not the {size_bytes} expected"
            )

    def became(self, status: os.stat_result, size_bytes: int) -> bool:
        """Whether the object there may be this upload, completed before."""
        inode = self.upload_id.rpartition("-")[2]
        return str(status.st_ino) == inode and status.st_size == size_bytes

    def discard(self) -> None:
        self.draft.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)

    def gone(self) -> NotFound:
        return NotFound(f"there is no open upload {self.upload_id} of {self.key!r}; begin anew")


def find(root: Path, prefix: str) -> Iterator[UploadInfo]:
    """Open uploads of keys that start with `prefix`. Raises OSError."""
    for path in _temporary_files(root, prefix):
        upload = _upload_of(path) if path.name.endswith(_LOG_SUFFIX) else None
        if upload is not None and upload.key.startswith(prefix):
            yield upload


@dataclass(frozen=True, slots=True, order=True)
class Stray:
    """An unfinished file that no upload knows of: whoever wrote it was killed.

    Attributes:
        written_unix_s: when it was last written to.
    """

    path: Path
    written_unix_s: float

    def remove(self) -> None:
        """Remove it, and what nothing else is in of the journal's folders. Idempotent.

        Raises:
            StoreError: as the file system says.
        """
        with mapped(f"removing {self.path}"):
            self.path.unlink(missing_ok=True)
        for folder in self.path.parents:
            if _JOURNALS not in folder.parts:
                break
            with suppress(OSError):
                folder.rmdir()


def find_strays(bucket: str, folder: str) -> Iterator[Stray]:
    """Unfinished files below a folder that belong to no open upload.

    Some may be of writers that are at work: look at when they were written.

    Raises:
        StoreError: a directory cannot be read.
    """
    root = root_of(bucket)
    with mapped(f"looking for unfinished files below {root / folder}"):
        for path in _temporary_files(root, folder):
            name = path.name.removesuffix(_LOG_SUFFIX)
            if not _TOKEN.fullmatch(name.removeprefix(TEMPORARY)):
                continue
            if _upload_of(path.with_name(name + _LOG_SUFFIX)) is not None:
                continue
            with suppress(FileNotFoundError):
                yield Stray(path, path.stat().st_mtime)


def _temporary_files(root: Path, prefix: str) -> Iterator[Path]:
    """Our own unfinished files in the folder that `prefix` names a part of. Raises OSError."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    folder = prefix.rpartition("/")[0]
    for directory, below, names in os.walk(root / folder, onerror=refuse, followlinks=True):
        below[:] = [name for name in below if not leads_back(Path(directory, name))]
        for name in sorted(names):
            if name.startswith(TEMPORARY):
                yield Path(directory) / name


def _upload_of(log: Path) -> UploadInfo | None:
    """What a log says of its upload; None where there is none, or its making was cut short."""
    try:
        with log.open() as lines:
            header = json.loads(lines.readline())
        return UploadInfo(header["key"], header["upload_id"], header["initiated"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _lock(file: int, how: int) -> bool:
    """Whether the file could be locked so, or its file system has no locks."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _lock_soon(file: int) -> bool:
    """Whether all writers let go of the file within a bounded time."""
    for _ in range(_LOOKS):
        if _lock(file, fcntl.LOCK_EX):
            return True
        time.sleep(_PAUSE_S)
    return False


def write_all(file: int, data: Body, offset: int) -> None:
    """Write all of `data` at `offset`, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view = view[written:]
        offset += written
