"""Which names an S3-like store takes, checked before a request is made."""

from __future__ import annotations

from skyplane_gateway.errors import InvalidKey

#: S3 and Google Cloud Storage: 1,024 bytes of UTF-8.
MAX_KEY_BYTES = 1024


def check_key(key: str) -> str:
    """Return `key` when S3 can hold it.

    S3-compatible servers differ in whether they refuse a long key or cut it short, so
    nobody is asked.

    Raises:
        InvalidKey: empty, longer than 1,024 bytes, or not UTF-8 text.
    """
    if not key:
        raise InvalidKey("an object needs a name; the key is empty")
    try:
        length = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidKey(f"the key {key!r} is not valid Unicode text; rename it") from error
    if length > MAX_KEY_BYTES:
        raise InvalidKey(
            f"the key {key[:60]!r}... has {length} bytes of UTF-8, more than {MAX_KEY_BYTES}; "
            "shorten it or choose a shorter destination prefix"
        )
    return key
