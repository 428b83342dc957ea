"""Checks whether a store can hold a key, before a request is sent."""

from __future__ import annotations

from typing import Final

from skyplane_gateway.common.errors import InvalidKey
from skyplane_gateway.common.objects import PROJECT_FOLDER
from skyplane_gateway.stores.local.paths import check_path

#: S3 and Google Cloud Storage: 1,024 bytes of UTF-8.
MAX_KEY_BYTES = 1024

#: The folder of open uploads in a bucket of Google Cloud Storage, and in a container of Azure.
UPLOADS_FOLDER: Final = f"{PROJECT_FOLDER}uploads/"

_ACME_FOLDER: Final = ".well-known/acme-challenge/"

#: Azure Blob Storage: characters of a name, and slashes in it.
_MAX_AZURE_CHARACTERS: Final = 1024
_MAX_AZURE_SLASHES: Final = 253


def check_key(key: str) -> str:
    """Return `key`; raise InvalidKey unless it is UTF-8 text of 1 to 1,024 bytes, as in S3.

    Some compatible servers refuse a long key, others cut it, so no server is asked.
    """
    length = _length_of(key)
    if length > MAX_KEY_BYTES:
        raise InvalidKey(
            f"the key {key[:60]!r}... has {length} bytes of UTF-8, more than {MAX_KEY_BYTES}; "
            "shorten it or choose a shorter destination prefix"
        )
    return key


def check_gcs_key(key: str) -> str:
    """Return `key`; raise InvalidKey for a name that Google Cloud Storage does not accept."""
    check_key(key)
    if key in (".", "..") or "\n" in key or "\r" in key or key.startswith(_ACME_FOLDER):
        raise InvalidKey(
            f"Google Cloud Storage accepts no object named {key!r} (. and .., line breaks, "
            f"{_ACME_FOLDER}); rename it"
        )
    if key.startswith(UPLOADS_FOLDER):
        raise InvalidKey(f"{key!r} is in {UPLOADS_FOLDER}, where open uploads are; rename it")
    return key


def check_azure_key(key: str) -> str:
    """Return `key`; raise InvalidKey if Azure Blob Storage would refuse or change it.

    The service takes a backslash for a slash, and drops dots at the end of a segment.
    """
    _length_of(key)
    # The service counts in UTF-16, where some characters are two.
    is_long = len(key.encode("utf-16-le")) > 2 * _MAX_AZURE_CHARACTERS
    if is_long or key.count("/") > _MAX_AZURE_SLASHES:
        raise InvalidKey(
            f"the key {key[:60]!r}... has more than {_MAX_AZURE_CHARACTERS} characters or "
            f"{_MAX_AZURE_SLASHES} slashes; shorten it or choose a shorter destination prefix"
        )
    ends_in_dot = any(segment.endswith(".") for segment in key.split("/"))
    if "\\" in key or ends_in_dot or any(c < " " or c == "\x7f" for c in key):
        raise InvalidKey(
            f"Azure cannot hold the key {key!r}: it has a backslash, a control character, or a "
            "dot at the end of a segment; rename the object"
        )
    if key.startswith(UPLOADS_FOLDER):
        raise InvalidKey(f"{key!r} is in {UPLOADS_FOLDER}, where open uploads are; rename it")
    return key


def _length_of(key: str) -> int:
    """Bytes of UTF-8. Raises InvalidKey for a key that is empty or no text."""
    if not key:
        raise InvalidKey("an object needs a name; the key is empty")
    try:
        return len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidKey(f"the key {key!r} is not valid Unicode text; rename it") from error


def check_destination_key(kind: str, key: str, size_bytes: int) -> None:
    """Raise InvalidKey unless a store of that kind can hold such an object. Sends no request."""
    if kind != "file":
        check = {"azure": check_azure_key, "gcs": check_gcs_key}.get(kind, check_key)
        check(key)
        return
    check_path("/", key, is_written=True)
    if key.endswith("/") and size_bytes > 0:
        raise InvalidKey(f"{key!r} names a directory, which holds no bytes; rename the object")
