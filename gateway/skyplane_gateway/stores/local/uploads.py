"""Multipart uploads on a file system: one sparse file and one log of its parts.

Both are in the destination's directory, so that publishing is a rename. Any process writes
parts to `.skyplane-upload-<id>` at their offsets. Each part is on the disk before its line is
appended to `.skyplane-upload-<id>.parts`, so a line proves the part.

A late writer that has the file open could still write to the finished object. So writers hold a
shared lock and check that the file is still the upload's. A completion holds the exclusive
lock; if a writer does not release its lock, it publishes a copy. This is a best effort on
file systems without locks.
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

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import ChecksumMismatch, NotFound, StoreError, StoreUnavailable
from skyplane_gateway.common.objects import Body, PartInfo, UploadInfo
from skyplane_gateway.stores.local.error_mapping import mapped
from skyplane_gateway.stores.local.paths import TEMPORARY, links_to_parent, root_of
from skyplane_gateway.stores.local.publish import make_folders, tidy, write_all

LOG_SUFFIX = ".parts"
#: The folder of journals, at any depth.
_JOURNALS = ".skyplane"
_TOKEN = re.compile(r"[0-9a-f]{32}")
#: Those of release 0.1.0 end with the file's inode.
_UPLOAD_ID = re.compile(r"[0-9a-f]{32}(?:-[0-9]+)?")
#: How often, and with which pause, a completion tries to lock the file: together longer than
#: writing a part to a disk takes.
_LOCK_ATTEMPTS: Final = 200
_LOCK_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class LocalUpload:
    """The two files of an upload to `target`."""

    key: str
    upload_id: str
    target: Path

    @classmethod
    def create(
        cls, key: str, target: Path, rng: random.Random, clock: Clock, mtime_ns: int | None = None
    ) -> LocalUpload:
        """Make the files. The finished one gets that modification time. Raises OSError."""
        upload_id = rng.randbytes(16).hex()
        make_folders(target.parent)
        upload = cls(key, upload_id, target)
        upload.draft.touch(exist_ok=False)
        header = {"key": key, "upload_id": upload_id, "initiated": clock.wall()}
        if mtime_ns is not None:
            header["mtime_ns"] = mtime_ns
        upload.log.write_text(json.dumps(header) + "\n")
        return upload

    @classmethod
    def named(cls, key: str, upload_id: str, target: Path) -> LocalUpload:
        """The upload of that id, which may be over. Raises NotFound for a malformed id."""
        upload = cls(key, upload_id, target)
        if _UPLOAD_ID.fullmatch(upload_id) is None:
            raise upload.gone()
        return upload

    @property
    def draft(self) -> Path:
        return self.target.parent / (TEMPORARY + self.upload_id.split("-", 1)[0])

    @property
    def log(self) -> Path:
        return self.draft.with_name(self.draft.name + LOG_SUFFIX)

    def write(self, number: int, data: Body, offset: int, crc32c: int) -> PartInfo:
        """Write one part to the disk, then append it to the log. NotFound: the upload is over."""
        file = self._open()
        try:
            if not _lock(file, fcntl.LOCK_SH):
                raise StoreUnavailable(f"the upload of {self.key!r} is being completed; try again")
            # The open file must still be the upload's, and have no other name.
            status = os.fstat(file)
            try:
                is_draft = os.path.samestat(status, self.draft.stat())
            except FileNotFoundError as error:
                raise self.gone() from error
            if not is_draft or status.st_nlink != 1:
                raise self.gone()
            write_all(file, data, offset)
            os.fdatasync(file)
            self._note(number, data, offset, crc32c)
        finally:
            os.close(file)
        return _part(number, offset, len(data), crc32c)

    def _open(self) -> int:
        try:
            # Also for reading: some network file systems need that for a shared lock.
            return os.open(self.draft, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self.gone() from error

    def _note(self, number: int, data: Body, offset: int, crc32c: int) -> None:
        # The leading newline ends a line that a crash cut short.
        line = f"\n{json.dumps([number, offset, len(data), crc32c])}\n"
        try:
            log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self.gone() from error
        try:
            # One short append is atomic: lines of other processes do not mix with it.
            os.write(log, line.encode())
        finally:
            os.close(log)

    @contextmanager
    def finished(self, rng: random.Random) -> Iterator[Path]:
        """The file to publish; no process writes to it any more. NotFound: the upload is over."""
        file = self._open()
        try:
            if _lock_exclusively(file):
                yield self.draft
                return
        finally:
            os.close(file)
        copy = self.draft.with_name(TEMPORARY + rng.randbytes(16).hex())
        try:
            shutil.copyfile(self.draft, copy)
            yield copy
        finally:
            tidy(copy)

    def parts(self) -> dict[int, PartInfo]:
        """The stored parts by number; a later line replaces an earlier one."""
        found: dict[int, PartInfo] = {}
        try:
            lines = self.log.read_text().splitlines()[1:]
        except FileNotFoundError as error:
            raise self.gone() from error
        for line in lines:
            try:
                number, offset, size, crc32c = json.loads(line)
            except ValueError:
                # Empty, or cut short by a crash before the part was acknowledged.
                continue
            found[number] = _part(number, offset, size, crc32c)
        return found

    def require(self, parts: Sequence[PartInfo], size_bytes: int) -> None:
        """Check that these parts are stored and cover the object without a gap.

        Raises:
            ChecksumMismatch: names the part.
            StoreError: the size differs.
        """
        stored = self.parts()
        end = 0
        for part in parts:
            entry = stored.get(part.number)
            starts_there = part.etag.startswith(f"{end}-")
            if entry is None or entry.etag != part.etag or not starts_there:
                raise ChecksumMismatch(
                    f"part {part.number} of {self.key!r} is not stored as {part.etag} at {end}; "
                    "upload the object again"
                )
            end += entry.size_bytes
        if end != size_bytes or self.draft.stat().st_size != size_bytes:
            raise StoreError(
                f"the parts of {self.key!r} have {end} bytes, not the {size_bytes} expected"
            )

    def mtime_ns(self) -> int | None:
        """The modification time for the finished file; None for that of its last write."""
        with self.log.open() as lines:
            found: int | None = json.loads(lines.readline()).get("mtime_ns")
        return found

    def discard(self) -> None:
        self.draft.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)

    def tidy(self) -> str:
        """As `discard`, once the file is published; why a name stays."""
        return tidy(self.draft, self.log)

    def gone(self) -> NotFound:
        return NotFound(
            f"there is no open upload {self.upload_id} of {self.key!r}; begin a new one"
        )


def _part(number: int, offset: int, size_bytes: int, crc32c: int) -> PartInfo:
    return PartInfo(number, f"{offset}-{size_bytes}-{crc32c:08x}", size_bytes, crc32c)


def find_uploads(root: Path, prefix: str) -> Iterator[UploadInfo]:
    """Open uploads of keys that start with `prefix`. Raises OSError."""
    for path in unfinished_files(root, prefix):
        upload = upload_of(path) if path.name.endswith(LOG_SUFFIX) else None
        if upload is not None and upload.key.startswith(prefix):
            yield upload


@dataclass(frozen=True, slots=True, order=True)
class OrphanFile:
    """An unfinished file without an open upload, left by a killed process."""

    path: Path
    written_unix_s: float

    def remove(self) -> None:
        """Remove it, and folders of journals that are empty then. Idempotent."""
        with mapped(f"removing {self.path}"):
            self.path.unlink(missing_ok=True)
        for folder in self.path.parents:
            if _JOURNALS not in folder.parts:
                break
            with suppress(OSError):
                folder.rmdir()


def find_orphan_files(bucket: str, folder: str) -> Iterator[OrphanFile]:
    """Unfinished files below a folder that belong to no open upload.

    Some may belong to writers at work: compare the time of the last write.
    """
    root = root_of(bucket)
    with mapped(f"looking for unfinished files below {root / folder}"):
        for path in unfinished_files(root, folder):
            name = path.name.removesuffix(LOG_SUFFIX)
            if not _TOKEN.fullmatch(name.removeprefix(TEMPORARY)):
                continue
            if upload_of(path.with_name(name + LOG_SUFFIX)) is not None:
                continue
            with suppress(FileNotFoundError):
                yield OrphanFile(path, path.stat().st_mtime)


def unfinished_files(root: Path, prefix: str) -> Iterator[Path]:
    """Unfinished files below the folder of `prefix`. Raises OSError."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    folder = prefix.rpartition("/")[0]
    for directory, below, names in os.walk(root / folder, onerror=refuse, followlinks=True):
        below[:] = [name for name in below if not links_to_parent(Path(directory, name))]
        for name in sorted(names):
            if name.startswith(TEMPORARY):
                yield Path(directory) / name


def upload_of(log: Path) -> UploadInfo | None:
    """The upload of a log; None where there is no log, or its first line is incomplete."""
    try:
        with log.open() as lines:
            header = json.loads(lines.readline())
        return UploadInfo(header["key"], header["upload_id"], header["initiated"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _lock(file: int, how: int) -> bool:
    """Lock without waiting; True also on a file system without locks."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _lock_exclusively(file: int) -> bool:
    """Whether all writers release the file within a bounded time."""
    for _ in range(_LOCK_ATTEMPTS):
        if _lock(file, fcntl.LOCK_EX):
            return True
        time.sleep(_LOCK_PAUSE_S)
    return False
