"""Converts this project's values to headers of Azure's requests, and answers back."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from awscrt import checksums

from skyplane_gateway.common.encoded_words import from_header, to_header, without_codes
from skyplane_gateway.common.mtime import dated, undated
from skyplane_gateway.common.objects import (
    HEADERS,
    Body,
    ObjectAttributes,
    ObjectInfo,
    Precondition,
    Tags,
)
from skyplane_gateway.stores.checksums import hex_of, verify
from skyplane_gateway.stores.error_rules import unix_s
from skyplane_gateway.stores.response_validation import NoAnswer, is_number, read_xml, require

#: Our claim about a blob's bytes, in its metadata: eight hexadecimal digits.
CRC32C_NAME: Final = "skyplane_crc32c"
METADATA: Final = "x-ms-meta-"

_PLAIN: Final = re.compile(r"[a-z0-9_]")
_CODE_REST: Final = re.compile(r"[0-9a-f]{2}_")

#: The tier of a blob that a copy has too, where the account's default is the usual one.
_DEFAULT_TIER: Final = "Hot"


def attribute_headers(attributes: ObjectAttributes | None, crc32c: int | None) -> dict[str, str]:
    """The headers of a write that set attributes and our checksum."""
    attributes = attributes or ObjectAttributes()
    headers = {
        f"x-ms-blob-{header}": to_header(text)
        for attribute, header in HEADERS.items()
        if (text := getattr(attributes, attribute)) is not None
    }
    headers |= {
        METADATA + to_azure(name): to_header(text)
        for name, text in dated(attributes.metadata).items()
    }
    if attributes.storage_class is not None:
        headers["x-ms-access-tier"] = attributes.storage_class
    if attributes.tags:
        headers["x-ms-tags"] = urlencode(attributes.tags, quote_via=quote)
    if crc32c is not None:
        headers[METADATA + CRC32C_NAME] = f"{crc32c:08x}"
    return headers


def put_headers(
    data: Body,
    attributes: ObjectAttributes | None,
    precondition: Precondition,
    crc32c: int | None,
    what: str,
) -> dict[str, str]:
    """The headers of Put Blob.

    Raises:
        ChecksumMismatch: the bytes do not have the CRC32C.
    """
    headers = {
        "x-ms-blob-type": "BlockBlob",
        **attribute_headers(attributes, crc32c),
        **precondition_headers(precondition),
        **crc64_header(data),
    }
    if crc32c is not None:
        # After the CRC64 was computed: bytes that change later do not fit it.
        verify(f"{what}: the body", data, crc32c)
    return headers


def written_info(
    key: str,
    headers: Mapping[str, str],
    size_bytes: int,
    attributes: ObjectAttributes | None,
    crc32c: int | None,
) -> ObjectInfo:
    """From the answer to Put Blob. Raises NoAnswer where it names no version."""
    require(headers, "etag")
    return ObjectInfo(
        key=key,
        size_bytes=size_bytes,
        etag=headers["etag"],
        last_modified=modified_at(headers),
        crc32c=crc32c,
        attributes=attributes or ObjectAttributes(),
    )


def precondition_headers(precondition: Precondition) -> dict[str, str]:
    if precondition.if_absent:
        return {"if-none-match": "*"}
    return match_headers(precondition.if_match)


def match_headers(if_match: str | None) -> dict[str, str]:
    return {} if if_match is None else {"if-match": if_match}


def crc64_header(data: Body) -> dict[str, str]:
    """The checksum by which the service refuses damaged bytes.

    Azure's CRC64 is CRC-64/NVME, written as eight little-endian bytes in base64.
    """
    found = int(checksums.crc64nvme(data))
    return {"x-ms-content-crc64": b64encode(found.to_bytes(8, "little")).decode()}


def attributes_of(headers: Mapping[str, str]) -> ObjectAttributes:
    """From an answer to HEAD or GET; `headers` has lower-case names."""
    pairs = {
        from_azure(name.removeprefix(METADATA)): from_header(value)
        for name, value in headers.items()
        if name.startswith(METADATA) and name != METADATA + CRC32C_NAME
    }
    values: dict[str, Any] = {
        attribute: from_header(headers[header]) if header in headers else None
        for attribute, header in HEADERS.items()
    }
    return ObjectAttributes(**values, metadata=undated(pairs.items()))


def tags_of(body: bytes) -> Tags:
    """From an answer to Get Blob Tags. Raises NoAnswer."""
    found = read_xml(body, "Tags").find("TagSet")
    if found is None or any(row.find("Key") is None for row in found):
        raise NoAnswer("has no TagSet of keys")
    return tuple(sorted((row.findtext("Key", ""), row.findtext("Value", "")) for row in found))


def info_of(key: str, headers: Mapping[str, str], *, trusted: bool) -> ObjectInfo:
    """From an answer to HEAD. Raises NoAnswer."""
    return ObjectInfo(
        key=key,
        size_bytes=size_of(headers),
        etag=headers["etag"],
        last_modified=modified_at(headers),
        crc32c=claimed_crc32c(headers) if trusted else None,
        attributes=attributes_of(headers),
        not_carried=not_carried_of(headers),
        storage_class=tier_of(headers),
        md5=md5_of(headers),
    )


def md5_of(headers: Mapping[str, str]) -> str | None:
    """The MD5 of a blob, from an answer about all of it. For a range it has a header of its own.

    Writes of an append or page blob leave it as it was.
    """
    found = headers.get("x-ms-blob-content-md5") or headers.get("content-md5")
    return hex_of(found, 16) if is_block_blob(headers) else None


def claimed_crc32c(headers: Mapping[str, str]) -> int | None:
    """The checksum that a write of attribute claimed.

    Every write of a block blob replaces its metadata too. Appends to an append blob do not, so
    there the claim may be old.
    """
    text = headers.get(METADATA + CRC32C_NAME, "")
    if not is_block_blob(headers) or len(text) != 8:
        return None
    try:
        return int(text, 16)
    except ValueError:
        return None


def not_carried_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """See `ObjectInfo.not_carried`. Only callers that may read tags are told their number."""
    found = {
        "tags": headers.get("x-ms-tag-count", "") not in ("", "0"),
        # An inferred tier is the default of the account.
        "storage-class": tier_of(headers) is not None
        and headers.get("x-ms-access-tier-inferred", "").lower() != "true",
        "expires": bool(headers.get("x-ms-expiry-time")),
        # Copies are block blobs.
        "blob-type": not is_block_blob(headers),
        "retention": bool(headers.get("x-ms-immutability-policy-until-date")),
        "hold": headers.get("x-ms-legal-hold") == "true",
    }
    return tuple(name for name, is_there in found.items() if is_there)


def is_block_blob(headers: Mapping[str, str]) -> bool:
    return headers.get("x-ms-blob-type", "BlockBlob") == "BlockBlob"


def tier_of(headers: Mapping[str, str]) -> str | None:
    """The tier of a blob; None for the usual one."""
    tier = headers.get("x-ms-access-tier", _DEFAULT_TIER)
    return None if tier == _DEFAULT_TIER else tier


def size_of(headers: Mapping[str, str]) -> int:
    """Of a blob that has a version, from headers or a listing's row. Raises NoAnswer."""
    require(headers, "content-length", "etag")
    if not is_number(headers["content-length"]):
        raise NoAnswer("has a content-length that is no number")
    return int(headers["content-length"])


def modified_at(headers: Mapping[str, str]) -> float:
    """Unix seconds, from headers or a listing's row. Raises NoAnswer."""
    found = unix_s(headers.get("last-modified", ""))
    if found is None:
        raise NoAnswer("has no last-modified that is a date")
    return found


def to_azure(name: str) -> str:
    """A name of metadata as Azure keeps it, a C# identifier; `from_azure` gives it in lower case.

    A character that Azure does not allow, such as a hyphen, becomes its UTF-8 bytes in hexadecimal,
    each between underscores: `with-dash` is `with_2d_dash`. So does a first digit, and an
    underscore that would otherwise look like the begin of such a code.
    """
    written = ""
    # From the end, since what follows an underscore decides whether it looks like a code.
    for position, character in reversed(list(enumerate(name.lower()))):
        is_plain = _PLAIN.fullmatch(character) is not None
        is_first_digit = position == 0 and character.isdigit()
        is_like_code = character == "_" and _CODE_REST.match(written) is not None
        if is_plain and not is_first_digit and not is_like_code:
            written = character + written
        else:
            written = "".join(f"_{byte:02x}_" for byte in character.encode()) + written
    return written


def from_azure(name: str) -> str:
    """The name that `to_azure` was given; in lower case, as all stores give names."""
    # Names of other programs may look like codes by chance.
    return without_codes(name.lower())
