"""The key rule of `cp`: maps keys of the source to keys of the destination.

It is Skyplane's rule, so that its users find their keys where they expect them. A prefix is a
folder: `foo` and `foo/` both mean the keys below `foo/`, never `foobar`. A single `/` means the
whole bucket.
"""

from __future__ import annotations

from skyplane_gateway.common.errors import NotFound


def folder_of(prefix: str) -> str:
    """The prefix of a listing: empty, or with a slash at its end."""
    prefix = _plain(prefix)
    return prefix if not prefix or prefix.endswith("/") else prefix + "/"


def map_key(
    source_prefix: str, source_key: str, destination_prefix: str, *, recursive: bool
) -> str:
    """The destination key of one source object.

    Without `recursive` the prefix is the object's whole key. The destination prefix is the new
    key; if it is empty or ends in a slash, the key's last segment is appended. With
    `recursive` the part of the key below the source folder goes below the destination
    folder, which keeps the order of keys.

    Raises:
        NotFound: the prefix does not select the object.
    """
    destination = _plain(destination_prefix)
    if recursive:
        folder = folder_of(source_prefix)
        if not source_key.startswith(folder):
            raise NotFound(
                f"there is no object {source_key!r} below {folder!r}; to copy the one object "
                f"{source_prefix!r}, leave out recursive"
            )
        return folder_of(destination) + source_key.removeprefix(folder)
    if source_key != _plain(source_prefix):
        raise NotFound(
            f"there is no object {source_prefix!r} at the source; to copy the objects below it, "
            "copy recursively"
        )
    if not destination or destination.endswith("/"):
        # A directory marker keeps its slash.
        return destination + source_key[source_key.rstrip("/").rfind("/") + 1 :]
    return destination


def _plain(prefix: str) -> str:
    return "" if prefix == "/" else prefix
