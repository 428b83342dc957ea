"""Lists files in the order of S3.

Links to files and folders are followed, since writes follow them too: a listing must find what
was written through one.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from skyplane_gateway.common.errors import StoreError
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores.base import Wants
from skyplane_gateway.stores.local.birth import made_at
from skyplane_gateway.stores.local.error_mapping import mapped
from skyplane_gateway.stores.local.paths import TEMPORARY, info_of, links_to_parent

log = logging.getLogger(__name__)


def walk(root: Path, prefix: str, start_after: str | None, wants: Wants) -> Iterator[ObjectInfo]:
    """Files under `root` whose key starts with `prefix`, ascending by the key's UTF-8 bytes.

    Raises:
        StoreError: a directory cannot be read, or a name is not UTF-8, and `wants` wants it.
    """
    folder, _, _ = prefix.rpartition("/")
    base = folder + "/" if folder else ""
    if any(segment in ("", ".", "..") for segment in folder.split("/") if folder):
        return
    is_there = False
    with _errors_if_wanted(base, root / folder, wants):
        is_there = _is_there(root / folder)
    if is_there:
        yield from _walk(root, base, prefix, start_after, wants)


def _is_there(folder: Path) -> bool:
    """Whether there is such a folder: there is none of a name that the system cannot hold."""
    try:
        return folder.is_dir()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


def _walk(
    root: Path, base: str, prefix: str, start_after: str | None, wants: Wants
) -> Iterator[ObjectInfo]:
    """The files of one directory and those below, in the order of keys.

    A directory's name is sorted with its slash. Entries before `start_after` are not read, so
    listing page by page costs little more than one listing.
    """

    def is_in_range(key: str) -> bool:
        if not (key.startswith(prefix) or (prefix.startswith(key) and key.endswith("/"))):
            return False
        is_after = start_after is None or key > start_after
        return is_after or (key.endswith("/") and str(start_after).startswith(key))

    entries: list[tuple[str, os.DirEntry[str]]] = []
    with _errors_if_wanted(base, root / base, wants):
        entries = sorted(
            (item for item in _entries(root / base) if is_in_range(base + item[0])),
            key=lambda item: item[0],
        )
    for name, entry in entries:
        key, reads_below, found = base + name, False, None
        with _errors_if_wanted(key, Path(entry.path), wants):
            try:
                entry.name.encode()
            except UnicodeEncodeError as error:
                raise StoreError(
                    f"the name of {entry.path!r} is not UTF-8, so no store can hold it; "
                    "rename it or leave it out by a filter",
                    is_permanent=True,
                ) from error
            if name.endswith("/"):
                reads_below = not links_to_parent(Path(entry.path))
                if not reads_below:
                    what = "left out of the listing, a link to a folder above it: %s"
                    log.warning(what, entry.path)
            else:
                found = _file(key, entry)
        if reads_below:
            yield from _walk(root, key, prefix, start_after, wants)
        elif found is not None:
            yield found


def _entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(TEMPORARY):
                yield entry.name + "/" if _is_folder(entry) else entry.name, entry


@contextmanager
def _errors_if_wanted(key: str, path: Path, wants: Wants) -> Iterator[None]:
    """Raise errors as StoreError; only log them for a key that the filters leave out."""
    try:
        with mapped(f"listing {os.fspath(path)!r}"):
            yield
    except StoreError as error:
        if key == "" or wants(key):
            raise
        log.warning("left out by the filters: %s", error.message)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # A broken link: `_file` logs the reason.


def _file(key: str, entry: os.DirEntry[str]) -> ObjectInfo | None:
    """A regular file, also through a link; None for anything else."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        # Deleted since the directory was read, or a broken link.
        log.warning("left out of the listing, deleted or a broken link: %s", entry.path)
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        log.warning("left out of the listing, a circular link: %s", entry.path)
        return None
    if not stat.S_ISREG(status.st_mode):
        log.warning("left out of the listing, not a regular file: %s", entry.path)
        return None
    found = info_of(key, status)
    if found.last_modified == found.written_unix_s:
        return found
    return replace(found, made_unix_s=made_at(entry.path, status))
