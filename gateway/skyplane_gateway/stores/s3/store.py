"""The S3 store, also for compatible servers, through boto3.

Every body is sent with its CRC32C, so that the store refuses damaged bytes. Only AWS's own
report of an object's checksum is trusted, or that of a server with the option
`checksum=trusted`: some servers report a checksum of the parts' checksums. `checksum=none` sends
an MD5 in its place, for servers that refuse the header.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from skyplane_gateway.common.errors import NotFound, SkyplaneError, StoreError
from skyplane_gateway.common.kept_properties import with_tags
from skyplane_gateway.common.objects import (
    MIB,
    UNCONDITIONAL,
    Body,
    Credentials,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    StoreCapabilities,
    StoreSpec,
    UploadInfo,
    is_time_pin,
)
from skyplane_gateway.stores.async_requests import AsyncRequests
from skyplane_gateway.stores.base import EmptyReader, ObjectStore, Reader, Wants
from skyplane_gateway.stores.checksums import crc32c_of, crc32c_text, stated_crc32c
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.key_rules import check_key
from skyplane_gateway.stores.readback import find_written
from skyplane_gateway.stores.response_validation import (
    in_order,
    require_made,
    require_range,
    unavailable,
)
from skyplane_gateway.stores.s3 import listing
from skyplane_gateway.stores.s3.body import S3Reader, SentBody
from skyplane_gateway.stores.s3.bucket import S3Bucket, require_version
from skyplane_gateway.stores.s3.error_mapping import code_of, mapped
from skyplane_gateway.stores.s3.requests import (
    answered_at,
    attribute_arguments,
    attributes_of,
    copy_arguments,
    full_checksum,
    not_carried_of,
    part_arguments,
    precondition_arguments,
)
from skyplane_gateway.stores.server_clock import ServerClock

log = logging.getLogger(__name__)

_GIB = 1024 * MIB


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> ObjectStore:
    """Called by `open_without_retries`."""
    return S3Store(spec, credentials)


class S3Store:
    """See `ObjectStore`."""

    def __init__(self, spec: StoreSpec, credentials: Credentials | None = None) -> None:
        self.spec = spec
        self._bucket = S3Bucket(spec, credentials)
        self._client = self._bucket.client
        self._restores = listing.Restores()
        self.server_clock = ServerClock()
        self.capabilities = StoreCapabilities(
            trusts_checksum=self._bucket.trusts_checksum,
            min_part_bytes=5 * MIB,
            max_part_bytes=5 * _GIB,
            max_parts=10_000,
            max_object_bytes=10_000 * 5 * _GIB,
            server_side_copy="ranges",
        )

    @cached_property
    def async_requests(self) -> AsyncRequests | None:
        """See `requests_of`. Without httptools or SigV4, threads and boto3 are left."""
        try:
            from skyplane_gateway.stores.s3.async_requests import open_requests
        except ModuleNotFoundError:
            return None
        return open_requests(self._bucket, self.spec)

    def check(self, prefix: str = "") -> None:
        with mapped(self._bucket.doing("listing", prefix)):
            self._client.list_objects_v2(Bucket=self.spec.bucket, Prefix=prefix, MaxKeys=1)

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        what = self._bucket.doing("listing", prefix)
        at, seen = (self._client, self.spec.bucket), (self._restores, self.server_clock)
        rows = listing.objects(*at, prefix, start_after, what, *seen)
        return in_order(rows, prefix, what, start_after)

    def head(self, key: str) -> ObjectInfo:
        with mapped(self._bucket.doing("looking at", check_key(key))):
            answer = self._bucket.head(key, with_checksum=self._bucket.trusts_checksum)
        info = self._bucket.info(key, answer)
        attributes, lacks = with_tags(
            attributes_of(answer), info.not_carried, self._bucket.tags(key)
        )
        return replace(info, attributes=attributes, not_carried=lacks)

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        what = self._bucket.doing("reading", check_key(key))
        condition: dict[str, Any] = {}
        if if_match is not None and not is_time_pin(if_match):
            condition["IfMatch"] = if_match
        # Parts of an object need no attributes.
        tags = self._bucket.tags(key) if offset == 0 else None
        if length == 0:
            with mapped(what):
                head = self._bucket.head(key, **condition)
            require_version(head, head["ContentLength"], if_match, what)
            found = with_tags(attributes_of(head), not_carried_of(head), tags)
            return EmptyReader(*found)
        wanted = f"bytes={offset}-{offset + length - 1}"
        with mapped(what):
            answer = self._bucket.get(key, wanted, **condition)
        try:
            metadata = answer["ResponseMetadata"]
            require_range(metadata["HTTPStatusCode"], metadata["HTTPHeaders"], offset, length, what)
            whole = answer.get("ContentRange", "").partition("/")[2]
            # -1 for `*`, which a server may answer: no time pin fits it.
            size_bytes = int(whole) if whole.isdecimal() else -1
            require_version(answer, size_bytes, if_match, what)
            is_whole = (offset, length) == (0, size_bytes)
            stated = self._bucket.stated(answer) if is_whole else None
            if is_whole and stated is None and self._bucket.trusts_checksum:
                # AWS leaves checksums out of answers to ranges.
                with mapped(what):
                    head = self._bucket.head(key, with_checksum=True, **condition)
                    stated = self._bucket.stated(head)
        except SkyplaneError:
            answer["Body"].close()
            raise
        found = with_tags(attributes_of(answer), not_carried_of(answer), tags)
        reader = S3Reader(answer["Body"], length, what, *found)
        reader.stated = stated
        return reader

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        bucket = self._bucket
        what = bucket.doing("writing", check_key(key))
        sent = bucket.sendable_precondition(key, precondition, what)
        # Any: the stubs ask for a body with more methods than botocore calls.
        arguments: dict[str, Any] = {"Body": SentBody(data), **attribute_arguments(attributes)}
        arguments |= precondition_arguments(sent) | bucket.body_checksum(data, crc32c)
        try:
            answer = self._client.put_object(Bucket=self.spec.bucket, Key=key, **arguments)
        except (ClientError, BotoCoreError) as error:
            raise bucket.write_failure(error, key, what, sent) from error
        if not answer.get("ETag"):
            info = find_written(self, key, len(data), crc32c_of(data))  # 2 calls.
            if info is None:
                raise unavailable(what, "names no ETag, and the store has other bytes")
            return info
        return ObjectInfo(
            key=key,
            size_bytes=len(data),
            etag=answer["ETag"],
            last_modified=answered_at(answer),
            # A server may ignore the header and store damaged bytes.
            crc32c=full_checksum(answer) if bucket.trusts_checksum else None,
            attributes=attributes or ObjectAttributes(),
        )

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self._create(key, attributes, with_checksum=self._bucket.sends_checksum)

    def create_copy_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self._create(key, attributes, with_checksum=self._bucket.checks_copies)

    def _create(self, key: str, attributes: ObjectAttributes | None, *, with_checksum: bool) -> str:
        bucket = self._bucket
        arguments = attribute_arguments(attributes)
        if with_checksum:
            arguments["ChecksumAlgorithm"] = "CRC32C"
            if bucket.trusts_checksum:
                arguments["ChecksumType"] = "FULL_OBJECT"
        with mapped(bucket.doing("beginning an upload of", check_key(key))):
            answer = self._client.create_multipart_upload(
                Bucket=self.spec.bucket, Key=key, **arguments
            )
        return answer["UploadId"]

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        bucket = self._bucket
        what = bucket.doing(f"writing part {number} of", key)
        arguments: dict[str, Any] = {"Body": SentBody(data), **bucket.body_checksum(data, crc32c)}
        with mapped(what):
            answer = self._client.upload_part(
                Bucket=self.spec.bucket, Key=key, UploadId=upload_id, PartNumber=number, **arguments
            )
        return PartInfo(number, _part_etag(answer, what), len(data), crc32c)

    def copy_part(self, key: str, upload_id: str, number: int, source: CopySource) -> PartInfo:
        what = self._bucket.doing(f"copying part {number} of", key)
        with mapped(what):
            answer = self._client.upload_part_copy(
                Bucket=self.spec.bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                **copy_arguments(source),
            )
        made = answer["CopyPartResult"]
        crc32c = stated_crc32c(made.get("ChecksumCRC32C")) if self._bucket.checks_copies else None
        return PartInfo(number, _part_etag(made, what), source.length, crc32c)

    def complete_upload(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[PartInfo],
        *,
        precondition: Precondition = UNCONDITIONAL,
        size_bytes: int,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        bucket = self._bucket
        what = bucket.doing("completing", key)
        precondition = bucket.sendable_precondition(key, precondition, what)
        arguments: dict[str, Any] = precondition_arguments(precondition)
        if bucket.trusts_checksum:
            arguments["MpuObjectSize"] = size_bytes
            # Without those of the parts, the upload was begun without checksums.
            if all(part.crc32c is not None for part in parts):
                arguments["ChecksumType"] = "FULL_OBJECT"
                if crc32c is not None:
                    arguments["ChecksumCRC32C"] = crc32c_text(crc32c)
        listed: Any = part_arguments(parts, with_checksums=bucket.sends_checksum)
        try:
            answer = self._client.complete_multipart_upload(
                Bucket=self.spec.bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": listed},
                **arguments,
            )
        except (ClientError, BotoCoreError) as error:
            raise bucket.write_failure(error, key, what, precondition) from error
        return self._confirmed(key, answer, size_bytes, what)

    def abort_upload(self, key: str, upload_id: str) -> None:
        bucket = self._bucket
        with mapped(bucket.doing("aborting an upload of", key)):
            try:
                self._client.abort_multipart_upload(
                    Bucket=self.spec.bucket, Key=key, UploadId=upload_id
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        what = self._bucket.doing("listing the open uploads of", prefix)
        return listing.uploads(self._client, self.spec.bucket, prefix, what)

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        what = self._bucket.doing("listing the parts of", key)
        return listing.parts(self._client, self.spec.bucket, key, upload_id, what)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        what = self._bucket.doing("deleting", check_key(key))
        precondition = self._bucket.sendable_precondition(
            key, Precondition(if_match=if_match), what
        )
        condition: dict[str, Any] = precondition_arguments(precondition)
        with mapped(what):
            try:
                self._client.delete_object(Bucket=self.spec.bucket, Key=key, **condition)
            except ClientError as error:
                if code_of(error) == "PreconditionFailed":
                    self.head(key)  # NotFound where a marker of the delete is the newest version.
                if not condition or code_of(error) != "NotImplemented":
                    raise
                self._client.delete_object(Bucket=self.spec.bucket, Key=key)

    def close(self) -> None:
        self._client.close()

    def _confirmed(
        self, key: str, answer: Mapping[str, Any], size_bytes: int, what: str
    ) -> ObjectInfo:
        """Look at the completed object and check its size, if it can be looked at.

        The caller compares the checksum and removes a bad object, since it is visible already.
        """
        etag, trusted = answer["ETag"], self._bucket.trusts_checksum
        try:
            with mapped(what):
                head = self._bucket.head(key, with_checksum=trusted)
        except NotFound:
            raise
        except SkyplaneError as error:
            log.warning("%r is written, but cannot be looked at: %s", key, error)
            crc32c = full_checksum(answer) if trusted else None
            return ObjectInfo(key, size_bytes, etag, answered_at(answer), crc32c)
        # A server that gives no ETag here has given one for the completion.
        stated_etag = etag if "ETag" in head else None
        return require_made(self._bucket.info(key, head), stated_etag, size_bytes, what)


def _part_etag(answer: Mapping[str, Any], what: str) -> str:
    etag: str = answer.get("ETag") or ""
    if not etag:
        raise StoreError(
            f"{what}: the store gives no ETag for the part but needs it to complete the "
            "object; copy to another store, or in larger parts"
        )
    return etag
