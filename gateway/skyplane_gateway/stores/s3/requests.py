"""Converts this project's values to S3's request arguments, and S3's answers back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from skyplane_gateway.common.encoded_words import (
    from_header,
    from_header_name,
    to_header,
    to_header_name,
)
from skyplane_gateway.common.objects import (
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    Tags,
    time_pin,
)
from skyplane_gateway.stores.checksums import Stated, crc32c_text, hex_of, stated_crc32c
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.error_rules import unix_s
from skyplane_gateway.stores.s3.sdk import BadAnswer

#: The storage class of an object that names none.
_STANDARD = "STANDARD"
#: Classes that must be restored before a read. No listing shows the archive tiers of
#: `INTELLIGENT_TIERING`.
_ARCHIVED = frozenset({"GLACIER", "DEEP_ARCHIVE"})

_MD5 = re.compile(r"[0-9a-f]{32}")

#: Checksums of whole objects and their bytes, the quickest first.
_CHECKSUMS = {"CRC32C": 4, "CRC64NVME": 8, "CRC32": 4}

_HEADERS = {
    "content_type": "ContentType",
    "content_encoding": "ContentEncoding",
    "content_language": "ContentLanguage",
    "content_disposition": "ContentDisposition",
    "cache_control": "CacheControl",
}


def attribute_arguments(attributes: ObjectAttributes | None) -> dict[str, Any]:
    if attributes is None:
        return {}
    values = {header: getattr(attributes, attribute) for attribute, header in _HEADERS.items()}
    arguments: dict[str, Any] = {
        name: to_header(value) for name, value in values.items() if value is not None
    }
    if attributes.metadata:
        arguments["Metadata"] = {
            to_header_name(name): to_header(text) for name, text in attributes.metadata
        }
    if attributes.storage_class is not None:
        arguments["StorageClass"] = attributes.storage_class
    if attributes.tags:
        arguments["Tagging"] = urlencode(attributes.tags, quote_via=quote)
    return arguments


def precondition_arguments(precondition: Precondition) -> dict[str, str]:
    if precondition.if_absent:
        return {"IfNoneMatch": "*"}
    return {} if precondition.if_match is None else {"IfMatch": precondition.if_match}


def part_arguments(parts: Sequence[PartInfo], *, with_checksums: bool) -> list[dict[str, Any]]:
    """The `Parts` of a completion, in order, each with its checksum where one is known."""
    listed = []
    for part in parts:
        entry: dict[str, Any] = {"PartNumber": part.number, "ETag": part.etag}
        if with_checksums and part.crc32c is not None:
            entry["ChecksumCRC32C"] = crc32c_text(part.crc32c)
        listed.append(entry)
    return listed


def copy_arguments(source: CopySource) -> dict[str, Any]:
    """For UploadPartCopy of a range of one version."""
    last = source.offset + source.length - 1
    arguments: dict[str, Any] = {
        "CopySource": {"Bucket": source.store.bucket, "Key": source.key},
        "CopySourceIfMatch": source.etag,
        "CopySourceRange": f"bytes={source.offset}-{last}",
    }
    if owner := source.store.option("bucket-owner"):
        arguments["ExpectedSourceBucketOwner"] = owner
    return arguments


def attributes_of(answer: Mapping[str, Any]) -> ObjectAttributes:
    pairs = sorted(
        (from_header_name(name.lower()), from_header(text))
        for name, text in answer.get("Metadata", {}).items()
    )
    headers: dict[str, Any] = {
        attribute: from_header(text) if (text := answer.get(header)) else text
        for attribute, header in _HEADERS.items()
    }
    names = [name.strip() for name in (headers["content_encoding"] or "").split(",")]
    # The form of an upload's body. AWS drops it; several services keep it.
    stored = [name for name in names if name.lower() != "aws-chunked"]
    if stored != names:
        headers["content_encoding"] = ", ".join(filter(None, stored)) or None
    return ObjectAttributes(**headers, metadata=tuple(pairs))


def class_of(answer: Mapping[str, Any]) -> str | None:
    """The class in an answer or a listing's row; None for the usual one."""
    found: str = answer.get("StorageClass") or _STANDARD
    return None if found == _STANDARD else found


def is_archived(row: Mapping[str, Any]) -> bool:
    """Whether the class of a listing's row must be restored before a read."""
    return row.get("StorageClass") in _ARCHIVED


def why_archived(row: Mapping[str, Any]) -> str:
    """See `ObjectInfo.archived`; for a row of a listing that asked for `RestoreStatus`."""
    if not is_archived(row):
        return ""
    restore = row.get("RestoreStatus", {})
    where = f"it is archived in the storage class {row['StorageClass']}"
    if restore.get("IsRestoreInProgress"):
        return f"{where}, and its restore is in progress: copy again when it has ended"
    if restore.get("RestoreExpiryDate"):
        return ""
    return f"{where}: restore it (aws s3api restore-object), then copy again"


def tags_of(answer: Mapping[str, Any]) -> Tags:
    """From an answer to GetObjectTagging. Raises BadAnswer."""
    try:
        return tuple(sorted((row["Key"], row["Value"]) for row in answer["TagSet"]))
    except KeyError as error:
        raise BadAnswer(why=f"has no {error.args[0]}") from error


def etag_of(answer: Mapping[str, Any], size_bytes: int) -> str:
    """The ETag in a listing's row or in an answer about one object.

    Some servers give none for files that another program made: then a `time_pin`.
    """
    return answer.get("ETag") or time_pin(answer["LastModified"].timestamp(), size_bytes)


def info_of_head(key: str, answer: Mapping[str, Any], *, trusted: bool) -> ObjectInfo:
    return ObjectInfo(
        key=key,
        size_bytes=answer["ContentLength"],
        etag=etag_of(answer, answer["ContentLength"]),
        last_modified=answer["LastModified"].timestamp(),
        crc32c=full_checksum(answer) if trusted else None,
        attributes=attributes_of(answer),
        not_carried=not_carried_of(answer),
        storage_class=class_of(answer),
    )


def not_carried_of(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """Metadata that a copy will not have, from an answer to GET or HEAD or a listing's row.

    S3 gives the number of tags only to callers that may read them.
    """
    found = {
        "tags": str(answer.get("TagCount") or 0) != "0",
        "storage-class": class_of(answer) is not None,
        # So many entries have characters that no header can hold.
        "user-metadata": int(answer.get("MissingMeta") or 0) > 0,
        "retention": bool(answer.get("ObjectLockMode")),
        "hold": "ON" in map(answer.get, ("ObjectLockLegalHoldStatus", "ObjectLockEventHold")),
        "website-redirect": bool(answer.get("WebsiteRedirectLocation")),
        # botocore keeps the header's text in addition to the parsed time.
        "expires": bool(answer.get("ExpiresString") or answer.get("Expires")),
    }
    return tuple(name for name, is_there in found.items() if is_there)


def full_checksum(answer: Mapping[str, Any]) -> int | None:
    """CRC32C of the whole object; None for a checksum of the parts' checksums."""
    if answer.get("ChecksumType") == "COMPOSITE":
        return None
    return stated_crc32c(answer.get("ChecksumCRC32C"))


def md5_of(answer: Mapping[str, Any]) -> str | None:
    """MD5 of the whole object, from an answer to GET or HEAD; None where its ETag is none.

    That of an object of several parts has a hyphen. One that was encrypted by KMS or with a
    customer's key has another ETag.
    """
    etag: str = answer.get("ETag", "").strip('"').lower()
    is_encrypted = answer.get("ServerSideEncryption", "AES256") != "AES256"
    if is_encrypted or answer.get("SSECustomerAlgorithm") or not _MD5.fullmatch(etag):
        return None
    return etag


def stated_of(answer: Mapping[str, Any]) -> Stated | None:
    """A checksum of the whole object, from an answer about all of it.

    Without its type it may be one of the parts' checksums: AWS drops the `-N` in answers to ranges.
    """
    if answer.get("ChecksumType") != "FULL_OBJECT":
        return None
    for name, size_bytes in _CHECKSUMS.items():
        digest = hex_of(answer.get(f"Checksum{name}"), size_bytes)
        if digest is not None:
            return Stated(name, digest)
    return None


def answered_at(answer: Mapping[str, Any]) -> float:
    """Unix seconds of the store's own `Date` header; 0.0 when it sent none."""
    return unix_s(answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")) or 0.0
