"""Keys as paths below a root.

A key is the path relative to the root, without a leading slash. A key that ends in `/` names a
directory: an empty object of that name creates it. A key with empty, `.` or `..` segments, NUL,
or segments over 255 bytes is refused, since no file has exactly that name. So is one whose path
would be longer than the system takes.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

from skyplane_gateway.common.errors import ConfigurationInvalid, InvalidKey
from skyplane_gateway.common.objects import ObjectInfo

#: How names of unfinished files begin; listings leave them out.
TEMPORARY = ".skyplane-upload-"
_MAX_SEGMENT_BYTES = 255
#: Longest path that Linux takes (PATH_MAX without its null byte).
MAX_PATH_BYTES = 4095
#: Length of the longest name of an unfinished file: the log of an upload's parts.
_UNFINISHED_BYTES = len(TEMPORARY) + 32 + len(".parts")


def root_of(bucket: str) -> Path:
    """The root directory of a spec's bucket. Raises ConfigurationInvalid for a relative path."""
    root = Path(bucket)
    if not root.is_absolute() or "\0" in bucket:
        raise ConfigurationInvalid(f"the root of a file store must be absolute, not {bucket!r}")
    return root


def path_of(root: Path, key: str) -> Path:
    """The file (or, for `x/`, the directory) of a key. Raises InvalidKey when there is none."""
    return Path(check_path(os.fspath(root), key))


def check_path(root: str, key: str, *, is_written: bool = False) -> str:
    """`path_of` as text, which takes a third of the time.

    `is_written`: there is also room for the name of its unfinished file.
    """
    segments = key.removesuffix("/").split("/")
    for segment in segments:
        why = _fault(segment)
        if why is not None:
            raise InvalidKey(f"the key {key!r} cannot be a file: {why}; rename it or leave it out")
    spare = max(0, _UNFINISHED_BYTES - len(segments[-1].encode())) if is_written else 0
    text = f"{root.rstrip('/')}/{'/'.join(segments)}"
    # Most are so short that no encoding could be too long.
    if 4 * len(text) + spare > MAX_PATH_BYTES < len(text.encode()) + spare:
        raise InvalidKey(
            f"the path {text[:60]!r}... takes {len(text.encode()) + spare:,} bytes, more than "
            f"{MAX_PATH_BYTES:,}; rename a folder or choose a shorter destination"
        )
    return text


@lru_cache(maxsize=4096)
def _fault(segment: str) -> str | None:
    if segment == "":
        return "it has an empty segment"
    if segment in (".", ".."):
        return f"{segment!r} names another directory"
    if "\0" in segment:
        return "it has a NUL"
    if segment.startswith(TEMPORARY):
        return f"names beginning with {TEMPORARY} are reserved for unfinished uploads"
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
    return ObjectInfo(key, size, etag_of(status), status.st_mtime, stored_unix_s=status.st_ctime)


def links_to_parent(folder: Path) -> bool:
    """Whether a folder is a link to a folder above it, so that a walk would never end."""
    if not folder.is_symlink():
        return False
    return any(folder.samefile(above) for above in folder.parents)
