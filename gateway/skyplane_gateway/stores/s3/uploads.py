"""Multipart uploads of an S3 bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from skyplane_gateway.errors import (
    NotFound,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
)
from skyplane_gateway.objects import (
    Body,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    UploadInfo,
)
from skyplane_gateway.stores.key_rules import check_key
from skyplane_gateway.stores.s3 import listing
from skyplane_gateway.stores.s3.bucket import Bucket, write_failure
from skyplane_gateway.stores.s3.errors import code_of, mapped
from skyplane_gateway.stores.s3.lost_replies import of_parts
from skyplane_gateway.stores.s3.requests import (
    attribute_arguments,
    part_arguments,
    precondition_arguments,
    sendable,
    to_header,
)


class Uploads:
    """The upload verbs of `ObjectStore`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def create(self, key: str, attributes: ObjectAttributes | None) -> str:
        bucket = self._bucket
        arguments = attribute_arguments(attributes)
        if bucket.sends_checksum:
            arguments["ChecksumAlgorithm"] = "CRC32C"
        if bucket.trusts_checksum:
            arguments["ChecksumType"] = "FULL_OBJECT"
        with mapped(bucket.doing("beginning an upload of", check_key(key))):
            answer = bucket.client.create_multipart_upload(Bucket=bucket.name, Key=key, **arguments)
        return answer["UploadId"]

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, crc32c: int
    ) -> PartInfo:
        bucket = self._bucket
        what = bucket.doing(f"writing part {number} of", key)
        arguments: dict[str, Any] = {"Body": sendable(data)}
        if bucket.sends_checksum:
            arguments["ChecksumCRC32C"] = to_header(crc32c)
        with mapped(what):
            answer = bucket.client.upload_part(
                Bucket=bucket.name, Key=key, UploadId=upload_id, PartNumber=number, **arguments
            )
        if not answer.get("ETag"):
            raise StoreError(
                f"{what}: the store gives no ETag for the part but needs it to complete the "
                "object; copy to another store, or in larger parts",
                is_permanent=True,
            )
        return PartInfo(number, answer["ETag"], len(data), crc32c)

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[PartInfo],
        *,
        precondition: Precondition,
        size_bytes: int,
        crc32c: int | None,
    ) -> ObjectInfo:
        bucket = self._bucket
        what = bucket.doing("completing", key)
        precondition = bucket.sendable_precondition(key, precondition, what)
        arguments: dict[str, Any] = precondition_arguments(precondition)
        if bucket.trusts_checksum:
            arguments |= {"ChecksumType": "FULL_OBJECT", "MpuObjectSize": size_bytes}
            if crc32c is not None:
                arguments["ChecksumCRC32C"] = to_header(crc32c)
        listed: Any = part_arguments(parts, with_checksums=bucket.sends_checksum)
        try:
            answer = bucket.client.complete_multipart_upload(
                Bucket=bucket.name,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": listed},
                **arguments,
            )
        except (ClientError, BotoCoreError) as error:
            failure = write_failure(error, what, precondition)
            if isinstance(failure, NotFound) or self._is_over(key, upload_id, failure):
                written = bucket.find_written(key, of_parts(size_bytes, parts, crc32c))
                if written is not None:
                    return written
                if isinstance(failure, StoreUnavailable):
                    failure = NotFound(f"{what}: the upload is gone; begin a new one")
            raise failure from error
        if "ETag" not in answer:
            raise StoreUnavailable(f"{what}: the answer names no object; look and try again")
        return self._confirmed(key, answer["ETag"], size_bytes, what)

    def abort(self, key: str, upload_id: str) -> None:
        bucket = self._bucket
        with mapped(bucket.doing("aborting an upload of", key)):
            try:
                bucket.client.abort_multipart_upload(
                    Bucket=bucket.name, Key=key, UploadId=upload_id
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

    def list(self, prefix: str) -> Iterator[UploadInfo]:
        what = self._bucket.doing("listing the open uploads of", prefix)
        return listing.uploads(self._bucket.client, self._bucket.name, prefix, what)

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        what = self._bucket.doing("listing the parts of", key)
        return listing.parts(self._bucket.client, self._bucket.name, key, upload_id, what)

    def _is_over(self, key: str, upload_id: str, failure: SkyplaneError) -> bool:
        """Whether the upload is gone although its completion failed: it may be the object now.

        Raises:
            Throttled, StoreUnavailable: unknown at the moment; complete again.
        """
        if not isinstance(failure, StoreUnavailable | PreconditionFailed):
            return False
        bucket = self._bucket
        try:
            bucket.client.list_parts(Bucket=bucket.name, Key=key, UploadId=upload_id, MaxParts=1)
        except (ClientError, BotoCoreError) as error:
            bucket.raise_temporary(error, key)
            return isinstance(error, ClientError) and code_of(error) == "NoSuchUpload"
        return False

    def _confirmed(self, key: str, etag: str, size_bytes: int, what: str) -> ObjectInfo:
        """Look at the completed object and check its size.

        The caller compares the checksum and removes a bad object, since it is visible already.
        """
        with mapped(what):
            head = self._bucket.head(key, with_checksum=self._bucket.trusts_checksum)
        # A server that gives no ETag here has given one for the completion.
        if head.get("ETag", etag).strip('"') != etag.strip('"'):
            raise PreconditionFailed(
                f"{what}: another write replaced the object at once; list it again"
            )
        if head["ContentLength"] != size_bytes:
            raise StoreError(
                f"{what}: the store made {head['ContentLength']} bytes of it, not {size_bytes}"
            )
        return self._bucket.info(key, head)
