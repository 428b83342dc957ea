"""Answers of services: read within bounds, and checked for their shape.

A proxy, a portal or another service may answer 200 with a body of its own. Such an answer is an
error, never an empty listing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, ParseError, fromstring

from skyplane_gateway.common.errors import PreconditionFailed, StoreError, StoreUnavailable
from skyplane_gateway.common.objects import MIB, ObjectAttributes, ObjectInfo

#: Longest body that is not an object's. The longest page, of 5000 blobs at Azure, has 45 MiB of
#: names (1024 characters of up to 9 bytes), 40 MiB of metadata and 5 MiB of properties.
MAX_BODY_BYTES: Final = 96 * MIB
#: Values of a page, which take some hundred bytes of memory each: 200 for each blob, each with two
#: tags, and 4000 for each object at Google, since commas of names and metadata count, too.
_MAX_XML_MARKS: Final = 2_000_000
_MAX_JSON_MARKS: Final = 4_000_000

#: What an SDK raises for an answer of another shape.
UNREADABLE: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    # Also RecursionError; and botocore's error for a time that is none.
    RuntimeError,
)


class NoAnswer(Exception):
    """The body is not of the service that was asked; the text says why, after "the answer"."""


def unavailable(what: str, why: object) -> StoreUnavailable:
    """The error for an answer that is none; `why` as the text of `NoAnswer`."""
    return StoreUnavailable(
        f"{what}: the answer {why}; check whether a proxy or another service answers at this "
        "address, and try again"
    )


def broken_listing(what: str, why: str) -> StoreError:
    """The error for a listing that may be incomplete."""
    return StoreError(f"{what}: the listing cannot be relied on ({why}); list again")


def in_order(
    rows: Iterable[ObjectInfo], prefix: str, what: str, last: str | None = None
) -> Iterator[ObjectInfo]:
    """The rows of a listing of a prefix, after the key `last`.

    Raises StoreError for one with another prefix, or that does not ascend: no repetition helps.
    """
    for row in rows:
        if not row.key.startswith(prefix):
            raise broken_listing(what, f"it has {row.key!r}, which was not asked for")
        # Order of code points is order of UTF-8 bytes.
        if row.key == last:
            raise broken_listing(what, f"{row.key!r} comes twice")
        if last is not None and row.key < last:
            raise StoreError(
                f"{what}: {row.key!r} comes after {last!r}, and copies need listings in the order "
                "of keys; directory buckets (S3 Express One Zone) and some services have none, "
                "so copy from and to another bucket",
                is_permanent=True,
            )
        last = row.key
        yield row


def require_range(
    status: int, headers: Mapping[str, str], offset: int, length: int, what: str
) -> None:
    """Raise StoreUnavailable unless the answer is that range of an object, and no longer.

    A body that is shorter breaks off. Names of headers are in lower case, or have no case.
    """
    last, sent = offset + length - 1, headers.get("content-length", "")
    content_range = headers.get("content-range", "no range")
    is_longer = is_number(sent) and int(sent) > length
    if status != 206 or is_longer or not content_range.startswith(f"bytes {offset}-{last}/"):
        raise StoreUnavailable(
            f"{what}: asked for bytes {offset} to {last}, the answer is {status} with "
            f"{content_range} in {sent} bytes; read the range again"
        )


def require_etag(found: str | None, if_match: str | None, what: str) -> None:
    """Raise PreconditionFailed for another version: some servers ignore a read's condition."""
    if if_match is not None and (found or "").strip('"') != if_match.strip('"'):
        raise PreconditionFailed(f"{what}: it is no longer the version {if_match}; list it again")


def require_made(found: ObjectInfo, etag: str | None, size_bytes: int, what: str) -> ObjectInfo:
    """The object of a completed upload, as a look at it shows it.

    Raises:
        PreconditionFailed: it has another ETag than the completion told (None: it told none).
        StoreError: it has another size.
    """
    if etag is not None and found.etag.strip('"') != etag.strip('"'):
        raise PreconditionFailed(
            f"{what}: another write replaced the object at once; list it again"
        )
    if found.size_bytes != size_bytes:
        raise StoreError(f"{what}: the store made {found.size_bytes} bytes of it, not {size_bytes}")
    return found


def joined(pieces: Iterable[bytes]) -> bytes:
    """The pieces in one. Raises NoAnswer for an endless one."""
    found, size_bytes = [], 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > MAX_BODY_BYTES:
            raise NoAnswer(f"is longer than {MAX_BODY_BYTES // MIB} MiB")
        found.append(piece)
    return b"".join(found)


def read_json(body: bytes, kind: str = "") -> dict[str, Any]:
    """The JSON object of a body, which names its `kind` at Google. Raises NoAnswer."""
    if sum(body.count(mark) for mark in (b",", b":", b"[", b"{")) > _MAX_JSON_MARKS:
        raise NoAnswer("has more values than a page")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"is no JSON{_kind_of(body)}") from error
    if not isinstance(found, dict):
        raise NoAnswer("is no JSON object")
    if kind and found.get("kind") != kind:
        raise NoAnswer(f"is not of the kind {kind}")
    return found


def read_xml(body: bytes, *roots: str) -> Element:
    """The root element of a document; its name, without a namespace, is one of `roots` if given.

    Raises NoAnswer.
    """
    found = None if b"<!DOCTYPE" in body else _parsed(body)  # Entities may be longer than memory.
    if found is None or (roots and local_name(found) not in roots):
        raise NoAnswer(f"is no {roots[0] if roots else 'XML of a service'}{_kind_of(body)}")
    return found


def local_name(element: Element) -> str:
    """The name without its namespace; some servers give none."""
    return str(element.tag).rpartition("}")[2]


def marked_attributes(document: object) -> ObjectAttributes:
    """The attributes in the marker of an upload. Raises NoAnswer."""
    try:
        if isinstance(document, dict) and "content_type" in document:
            found = ObjectAttributes.from_dict(document)
            texts = [text for name, text in document.items() if name not in ("metadata", "tags")]
            are_texts = all(isinstance(text, str | None) for text in texts)
            if are_texts and document.items() <= found.to_dict().items():
                return found
    except (AttributeError, TypeError, ValueError):
        pass
    raise NoAnswer("is no marker of an upload")


def is_number(text: str) -> bool:
    """Whether the text is a whole number, not negative, that fits 64 bits."""
    return text.isdecimal() and len(text) < 20


def require(found: Mapping[str, Any], *names: str) -> None:
    """Raise NoAnswer for a name that has no text."""
    for name in names:
        if not isinstance(found.get(name), str) or not found[name]:
            raise NoAnswer(f"has no {name}")


def _parsed(body: bytes) -> Element | None:
    """The root of a document that is no larger than a page; None for another body."""
    if body.count(b"<") + body.count(b'="') > _MAX_XML_MARKS:
        return None
    try:
        return fromstring(body.decode("utf-8-sig"))
    except (ParseError, ValueError):
        return None


def _kind_of(body: bytes) -> str:
    """What a person would see in the body."""
    start = body[:200].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if not start:
        return ", but empty"
    return ", but HTML" if start.startswith((b"<!doctype html", b"<html")) else ""
