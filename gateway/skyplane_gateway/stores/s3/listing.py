"""Paged listings of S3, checked to be complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skyplane_gateway.common.objects import ObjectInfo, PartInfo, UploadInfo
from skyplane_gateway.stores.checksums import stated_crc32c
from skyplane_gateway.stores.response_validation import broken_listing
from skyplane_gateway.stores.s3.error_mapping import mapped
from skyplane_gateway.stores.s3.requests import (
    class_of,
    etag_of,
    is_archived,
    not_carried_of,
    why_archived,
)
from skyplane_gateway.stores.server_clock import ServerClock

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PAGE_KEYS = 1000


@dataclass(slots=True)
class Restores:
    """Whether listings of a store ask which archived objects are restored.

    They do so from the first archived object on. Some services refuse a header that they do not
    know, and few buckets have archived objects.
    """

    are_asked: bool = False


def objects(
    client: S3Client,
    bucket: str,
    prefix: str,
    start_after: str | None,
    what: str,
    restores: Restores,
    server_clock: ServerClock,
) -> Iterator[ObjectInfo]:
    """Every object under `prefix`, as the store lists them.

    The page with the first archived object is asked for twice.

    Raises StoreError when the listing may be incomplete; see `ObjectStore.list`.
    """
    arguments: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": _PAGE_KEYS}
    if start_after is not None:
        arguments["StartAfter"] = start_after
    while True:
        if restores.are_asked:
            arguments["OptionalObjectAttributes"] = ["RestoreStatus"]
        with mapped(what):
            page: dict[str, Any] = dict(client.list_objects_v2(**arguments))
        server_clock.note(page["ResponseMetadata"]["HTTPHeaders"].get("date"))
        contents = page.get("Contents", [])
        if "OptionalObjectAttributes" not in arguments and any(map(is_archived, contents)):
            restores.are_asked = True
            continue
        if page.get("KeyCount", len(contents)) != len(contents):
            raise broken_listing(what, "a page holds fewer keys than it says")
        for entry in contents:
            yield ObjectInfo(
                key=entry["Key"],
                size_bytes=entry["Size"],
                etag=etag_of(entry, entry["Size"]),
                last_modified=entry["LastModified"].timestamp(),
                not_carried=not_carried_of(entry),
                storage_class=class_of(entry),
                archived=why_archived(entry),
            )
        if not page.get("IsTruncated"):
            return
        arguments["ContinuationToken"] = _next(
            page.get("NextContinuationToken"), arguments.get("ContinuationToken"), what
        )


def uploads(client: S3Client, bucket: str, prefix: str, what: str) -> Iterator[UploadInfo]:
    """Every open upload of keys under `prefix`."""
    arguments: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix}
    while True:
        with mapped(what):
            page: dict[str, Any] = dict(client.list_multipart_uploads(**arguments))
        for entry in page.get("Uploads", []):
            # Some servers ignore the prefix here.
            if entry["Key"].startswith(prefix):
                yield UploadInfo(entry["Key"], entry["UploadId"], entry["Initiated"].timestamp())
        if not page.get("IsTruncated"):
            return
        before = (arguments.get("KeyMarker"), arguments.get("UploadIdMarker"))
        # A server may name no upload, where the next page begins with another key.
        after = (page.get("NextKeyMarker"), page.get("NextUploadIdMarker", ""))
        if after == before or after[0] is None:
            raise broken_listing(what, "the marker of the next page is missing or repeated")
        arguments["KeyMarker"], arguments["UploadIdMarker"] = after


def parts(
    client: S3Client, bucket: str, key: str, upload_id: str, what: str
) -> tuple[PartInfo, ...]:
    """Every stored part, ascending by number."""
    arguments: dict[str, Any] = {"Bucket": bucket, "Key": key, "UploadId": upload_id}
    found: list[PartInfo] = []
    while True:
        with mapped(what):
            page: dict[str, Any] = dict(client.list_parts(**arguments))
        for entry in page.get("Parts", []):
            crc32c = stated_crc32c(entry.get("ChecksumCRC32C"))
            found.append(
                PartInfo(entry["PartNumber"], entry.get("ETag", ""), entry["Size"], crc32c)
            )
        if not page.get("IsTruncated"):
            return tuple(sorted(found, key=lambda part: part.number))
        arguments["PartNumberMarker"] = _next(
            page.get("NextPartNumberMarker"), arguments.get("PartNumberMarker"), what
        )


def _next(token: Any, before: Any, what: str) -> Any:
    if token is None or token == "" or token == before:
        raise broken_listing(what, "the marker of the next page is missing or repeated")
    return token
