"""Paged listings of S3, checked to be complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

    def page_of(**given: Any) -> dict[str, Any]:
        while True:
            if restores.are_asked:
                given["OptionalObjectAttributes"] = ["RestoreStatus"]
            page: dict[str, Any] = dict(client.list_objects_v2(**given))
            is_told = "OptionalObjectAttributes" in given
            if is_told or not any(map(is_archived, page.get("Contents", []))):
                return page
            restores.are_asked = True

    marker = {"ContinuationToken": "NextContinuationToken"}
    for page in _pages(page_of, arguments, marker, what):
        server_clock.note(page["ResponseMetadata"]["HTTPHeaders"].get("date"))
        contents = page.get("Contents", [])
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


def uploads(client: S3Client, bucket: str, prefix: str, what: str) -> Iterator[UploadInfo]:
    """Every open upload of keys under `prefix`."""
    # A server may name no upload, where the next page begins with another key.
    markers = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
    arguments = {"Bucket": bucket, "Prefix": prefix}
    for page in _pages(client.list_multipart_uploads, arguments, markers, what):
        for entry in page.get("Uploads", []):
            # Some servers ignore the prefix here.
            if entry["Key"].startswith(prefix):
                yield UploadInfo(entry["Key"], entry["UploadId"], entry["Initiated"].timestamp())


def parts(
    client: S3Client, bucket: str, key: str, upload_id: str, what: str
) -> tuple[PartInfo, ...]:
    """Every stored part, ascending by number."""
    arguments = {"Bucket": bucket, "Key": key, "UploadId": upload_id}
    marker = {"PartNumberMarker": "NextPartNumberMarker"}
    found = [
        PartInfo(
            entry["PartNumber"],
            entry.get("ETag", ""),
            entry["Size"],
            stated_crc32c(entry.get("ChecksumCRC32C")),
        )
        for page in _pages(client.list_parts, arguments, marker, what)
        for entry in page.get("Parts", [])
    ]
    return tuple(sorted(found, key=lambda part: part.number))


# Any: each verb has types of its own.
def _pages(
    verb: Any, arguments: Mapping[str, Any], markers: Mapping[str, str], what: str
) -> Iterator[dict[str, Any]]:
    """The pages of a listing.

    Args:
        markers: argument of a request -> its name in the page before; the first may not be empty.
    """
    place: dict[str, Any] = {}
    while True:
        with mapped(what):
            page = dict(verb(**arguments, **place))
        yield page
        if not page.get("IsTruncated"):
            return
        found = {name: page.get(after) or "" for name, after in markers.items()}
        if found == place or not next(iter(found.values())):
            raise broken_listing(what, "the marker of the next page is missing or repeated")
        place = found
