"""Keys as paths below a root, and the walk that lists them in the order of S3.

A key is the path relative to the root, without a leading slash. A key ending in `/`
names a directory: an empty object of that name creates it, and listings show files
only. Keys with empty, `.` or `..` segments, NUL, or segments over 255 bytes have no
file of their own, so they are refused rather than folded into another name.

Links are followed, to files and to folders, since writing follows them too: what is
written through one must be found by the next listing.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skyplane_gateway.errors import ConfigurationInvalid, InvalidKey, StoreError
from skyplane_gateway.objects import ObjectInfo
from skyplane_gateway.stores.base import Wants
from skyplane_gateway.stores.local.errors import mapped

logger = logging.getLogger(__name__)

#: How our own unfinished files begin; listings pass over them.
TEMPORARY = ".skyplane-upload-"
_MAX_SEGMENT_BYTES = 255


def root_of(bucket: str) -> Path:
    """The root directory that a spec's bucket names.

    Raises:
        ConfigurationInvalid: it is not an absolute path.
    """
    root = Path(bucket)
    if not root.is_absolute() or "\0" in bucket:
        raise ConfigurationInvalid(f"the root of a file store must be absolute, not {bucket!r}")
    return root


def path_of(root: Path, key: str) -> Path:
    """The file (or, for `x/`, the directory) of a key.

    Raises:
        InvalidKey: no file can have exactly this key.
    """
    segments = key.removesuffix("/").split("/")
    for segment in segments:
        why = _fault(segment)
        if why is not None:
            raise InvalidKey(f"the key {key!r} cannot be a file: {why}; rename it or leave it out")
    return root.joinpath(*segments)


def _fault(segment: str) -> str | None:
    if segment == "":
        return "it has an empty segment"
    if segment in (".", ".."):
        return f"{segment!r} would be another directory"
    if "\0" in segment:
        return "it has a NUL"
    if segment.startswith(TEMPORARY):
        return f"names beginning with {TEMPORARY} are kept for unfinished uploads"
    try:
        length = len(segment.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode text"
    if length > _MAX_SEGMENT_BYTES:
        return f"a segment has {length} bytes, more than {_MAX_SEGMENT_BYTES}"
    return None


def etag_of(status: os.stat_result) -> str:
    """Pins a version: a write in place changes the time, a rename the inode."""
    return f"{status.st_mtime_ns}-{status.st_size}-{status.st_ino}"


def info_of(key: str, status: os.stat_result) -> ObjectInfo:
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return ObjectInfo(key, size, etag_of(status), status.st_mtime)


def walk(root: Path, prefix: str, start_after: str | None, wants: Wants) -> Iterator[ObjectInfo]:
    """Files under `root` whose key starts with `prefix`, ascending by the key's UTF-8 bytes.

    Raises:
        StoreError: a directory cannot be read, or a name is not UTF-8, and `wants` does not
            say that it is to be left out: else the listing would be short in silence.
    """
    folder, _, _ = prefix.rpartition("/")
    base = folder + "/" if folder else ""
    if any(segment in ("", ".", "..") for segment in folder.split("/") if folder):
        return
    if (root / folder).is_dir():
        yield from _walk(root, base, prefix, start_after, wants)


def _walk(
    root: Path, base: str, prefix: str, start_after: str | None, wants: Wants
) -> Iterator[ObjectInfo]:
    """Names compare as whole keys do when a directory's counts with its slash.

    What lies before `start_after` is dropped before it is sorted, and its directories are
    not read: a listing that is taken up again by the page costs little more than one.
    """

    def is_asked_for(key: str) -> bool:
        if not (key.startswith(prefix) or (prefix.startswith(key) and key.endswith("/"))):
            return False
        is_after = start_after is None or key > start_after
        return is_after or (key.endswith("/") and str(start_after).startswith(key))

    entries: list[tuple[str, os.DirEntry[str]]] = []
    with _excused(base, root / base, wants):
        entries = sorted(
            (item for item in _entries(root / base) if is_asked_for(base + item[0])),
            key=lambda item: item[0],
        )
    for name, entry in entries:
        key, is_to_be_read, found = base + name, False, None
        with _excused(key, Path(entry.path), wants):
            _require_text(entry)
            if name.endswith("/"):
                is_to_be_read = not _is_endless(entry)
            else:
                found = _file(key, entry)
        if is_to_be_read:
            yield from _walk(root, key, prefix, start_after, wants)
        elif found is not None:
            yield found


def _entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(TEMPORARY):
                yield entry.name + "/" if _is_folder(entry) else entry.name, entry


@contextmanager
def _excused(key: str, path: Path, wants: Wants) -> Iterator[None]:
    """What goes wrong inside is no harm where nobody wants the key."""
    try:
        with mapped(f"listing {os.fspath(path)!r}"):
            yield
    except StoreError as error:
        if key == "" or wants(key):
            raise
        logger.warning("left out by the filters: %s", error.message)


def _require_text(entry: os.DirEntry[str]) -> None:
    try:
        entry.name.encode()
    except UnicodeEncodeError as error:
        raise StoreError(
            f"the name of {entry.path!r} is not UTF-8, so no store can hold it; "
            "rename it or leave it out by a filter",
            is_permanent=True,
        ) from error


def _is_endless(entry: os.DirEntry[str]) -> bool:
    is_endless = leads_back(Path(entry.path))
    if is_endless:
        logger.warning("left out of the listing, a link to a folder above it: %s", entry.path)
    return is_endless


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # A link that cannot be followed: whoever looks at it as a file says why.


def leads_back(folder: Path) -> bool:
    """Whether a folder is a link to one that it lies in, so that a walk would never end.

    Raises:
        OSError: as the file system says.
    """
    if not folder.is_symlink():
        return False
    return any(folder.samefile(above) for above in folder.parents)


def _file(key: str, entry: os.DirEntry[str]) -> ObjectInfo | None:
    """A regular file, also through a link; None for what is no object."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        # Deleted since the directory was read, or a link that leads nowhere.
        logger.warning("left out of the listing, gone or a link that leads nowhere: %s", entry.path)
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        logger.warning("left out of the listing, a link that leads in a circle: %s", entry.path)
        return None
    if not stat.S_ISREG(status.st_mode):
        logger.warning("left out of the listing, not a regular file: %s", entry.path)
        return None
    return info_of(key, status)
