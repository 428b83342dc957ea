"""Writes files so that they are on the disk, and gives finished files their names."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from skyplane_gateway.common.errors import InvalidKey, PreconditionFailed
from skyplane_gateway.common.objects import Body, ObjectInfo, Precondition
from skyplane_gateway.stores.body_blocks import Blocks
from skyplane_gateway.stores.local.paths import etag_of, info_of

log = logging.getLogger(__name__)


_MAKE_ROOM = "rename or delete it, as a sync with delete does"

#: Held while folders are made: a thread that finds one may rely on its being on the disk.
_MAKING = threading.Lock()


def make_folders(folder: Path) -> None:
    """Make a folder, and those above it that are missing; each new name is on the disk."""
    with _MAKING:
        new = list(takewhile(lambda one: not one.is_dir(), (folder, *folder.parents)))
        if new and new[-1].exists():
            raise InvalidKey(f"{new[-1]} is a file, and a folder is needed there; {_MAKE_ROOM}")
        for one in reversed(new):
            one.mkdir(exist_ok=True)
            sync(one.parent)


def write_all(file: int, data: Body, offset: int) -> None:
    """Write all of `data` at `offset`, also if single writes are short."""
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view = view[written:]
        offset += written


def write_synced(draft: Path, data: Body) -> int:
    """Write a new file; the CRC32C of its bytes, summed while the processor's cache holds them."""
    from skyplane_gateway.common.checksum import crc32c  # Loads the AWS library.

    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        found = offset = 0
        for piece in Blocks(data):
            found = crc32c(piece, found)
            write_all(file, piece, offset)
            offset += len(piece)
        os.fsync(file)
        return found
    finally:
        os.close(file)


def sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def publish(
    draft: Path, key: str, path: Path, precondition: Precondition, mtime_ns: int | None
) -> ObjectInfo:
    """Give the finished file its name, and a modification time, under the precondition."""
    with locked(path.parent) as folder:
        if path.is_dir():
            raise InvalidKey(f"{path} is a folder, and a file is needed there; {_MAKE_ROOM}")
        if mtime_ns is not None:
            # Not before: a sweep knows unfinished files that are left by their old times.
            os.utime(draft, ns=(mtime_ns, mtime_ns))
        if precondition.if_absent:
            # A hard link never replaces another file, as a rename does.
            try:
                os.link(draft, path)
            except FileExistsError as error:
                # A crash after the link leaves both names of one file.
                if not os.path.samestat(draft.stat(), path.lstat()):
                    raise PreconditionFailed(f"there is already a file {path}") from error
            tidy(draft)
        else:
            require_version(path, precondition.if_match)
            draft.rename(path)
        if mtime_ns is not None:
            sync(path)
        os.fsync(folder)
        return info_of(key, path.stat())


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Keep other gateways from replacing a version between its check and the rename.

    A best effort: other programs take no lock, and some network file systems have none.
    """
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def tidy(*names: Path) -> str:
    """Remove temporary names of a file that is there, or that failed; why one stays.

    One that stays changes nothing about the file, and a sweep removes it.
    """
    why = ""
    for name in names:
        try:
            name.unlink(missing_ok=True)
        except OSError as error:
            why = f"{name} stays: {error.strerror}"
            log.warning("%s; a sweep removes it", why)
    return why


def require_version(path: Path, if_match: str | None) -> None:
    if if_match is None:
        return
    try:
        found = etag_of(path.stat())
    except FileNotFoundError as error:
        raise PreconditionFailed(f"{path}, which was to be replaced, is gone") from error
    if found != if_match:
        raise PreconditionFailed(f"{path} is no longer the version {if_match}; list it again")
