"""S3 and stores that speak its protocol, through boto3.

Checksums: every body goes with its CRC32C, so the store refuses what was damaged on
the way. What the store later *says* an object's checksum is, is believed only of AWS
itself, or where option `checksum=trusted` says so: some compatible servers label a
checksum of part checksums as the object's. `checksum=none` sends none, for servers
that refuse the header.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from skyplane_gateway.errors import (
    WAITED_FOR,
    NotFound,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
)
from skyplane_gateway.objects import (
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
    time_pin,
)
from skyplane_gateway.stores.base import ObjectStore, Reader, Wants
from skyplane_gateway.stores.key_rules import check_key
from skyplane_gateway.stores.s3 import listing
from skyplane_gateway.stores.s3.checksum_header import to_header
from skyplane_gateway.stores.s3.client import ambient_credentials, bucket_region, open_client
from skyplane_gateway.stores.s3.errors import code_of, mapped, translate
from skyplane_gateway.stores.s3.lost_replies import Fingerprint, of_body, of_parts
from skyplane_gateway.stores.s3.reader import EmptyReader, S3Reader
from skyplane_gateway.stores.s3.requests import (
    answered_at,
    attribute_arguments,
    attributes_of,
    full_checksum,
    info_of_head,
    not_carried_of,
    part_arguments,
    precondition_arguments,
    sendable,
)

__all__ = ["S3Store", "ambient_credentials", "bucket_region", "open_from_spec"]

_GIB = 1024 * MIB


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> ObjectStore:
    """What `open_store` calls."""
    return S3Store(spec, credentials)


class S3Store:
    """See `ObjectStore`."""

    def __init__(self, spec: StoreSpec, credentials: Credentials | None = None) -> None:
        self.spec = spec
        self._client = open_client(spec, credentials)
        checksum = spec.option("checksum") or ("sent" if spec.endpoint_url else "trusted")
        self._trusted = checksum == "trusted"
        self._sends_checksum = checksum != "none"
        self.capabilities = StoreCapabilities(
            trusts_checksum=self._trusted,
            ordered_listing=True,
            supports_metadata=True,
            min_part_bytes=5 * MIB,
            max_part_bytes=5 * _GIB,
            max_parts=10_000,
            max_object_bytes=10_000 * 5 * _GIB,
        )

    def check(self, prefix: str = "") -> None:
        with mapped(self._what("listing", prefix)):
            self._client.list_objects_v2(Bucket=self.spec.bucket, Prefix=prefix, MaxKeys=1)

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        what = self._what("listing", prefix)
        return listing.objects(self._client, self.spec.bucket, prefix, start_after, what)

    def head(self, key: str) -> ObjectInfo:
        with mapped(self._what("looking at", check_key(key))):
            answer = self._head(key, with_checksum=self._trusted)
        return info_of_head(key, answer, trusted=self._trusted)

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        what = self._what("reading", check_key(key))
        arguments: dict[str, Any] = {"Bucket": self.spec.bucket, "Key": key}
        if if_match is not None and not is_time_pin(if_match):
            arguments["IfMatch"] = if_match
        if length == 0:
            with mapped(what):
                head = self._head_object(**arguments)
            _require_pin(head, head["ContentLength"], if_match, what)
            return EmptyReader(attributes_of(head), not_carried_of(head))
        last = offset + length - 1
        with mapped(what):
            answer = self._client.get_object(**arguments, Range=f"bytes={offset}-{last}")
        try:
            size_bytes = _require_range(answer, offset, last, what)
            _require_pin(answer, size_bytes, if_match, what)
        except StoreError:
            answer["Body"].close()
            raise
        beside = not_carried_of(answer)
        return S3Reader(answer["Body"], length, what, attributes_of(answer), beside)

    def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes | None = None,
        precondition: Precondition = UNCONDITIONAL,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        what = self._what("writing", check_key(key))
        precondition = self._sendable_fence(key, precondition, what)
        arguments = {**attribute_arguments(attributes), **precondition_arguments(precondition)}
        if crc32c is not None and self._sends_checksum:
            arguments["ChecksumCRC32C"] = to_header(crc32c)
        try:
            answer = self._client.put_object(
                Bucket=self.spec.bucket, Key=key, Body=sendable(data), **arguments
            )
        except (ClientError, BotoCoreError) as error:
            failure = _write_failure(error, what, precondition)
            if precondition != UNCONDITIONAL and isinstance(failure, StoreUnavailable):
                landed = self._find(key, of_body(data))
                if landed is not None:
                    return landed
            raise failure from error
        if not answer.get("ETag"):
            return self.head(key)
        return ObjectInfo(
            key=key,
            size_bytes=len(data),
            etag=answer["ETag"],
            last_modified=answered_at(answer),
            # A server may ignore the header and store what it got.
            crc32c=full_checksum(answer) if self._trusted else None,
            attributes=attributes or ObjectAttributes(),
        )

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        arguments = attribute_arguments(attributes)
        if self._sends_checksum:
            arguments["ChecksumAlgorithm"] = "CRC32C"
        if self._trusted:
            arguments["ChecksumType"] = "FULL_OBJECT"
        with mapped(self._what("beginning an upload of", check_key(key))):
            answer = self._client.create_multipart_upload(
                Bucket=self.spec.bucket, Key=key, **arguments
            )
        return answer["UploadId"]

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        arguments: dict[str, Any] = {"Body": sendable(data)}
        if self._sends_checksum:
            arguments["ChecksumCRC32C"] = to_header(crc32c)
        with mapped(self._what(f"writing part {number} of", key)):
            answer = self._client.upload_part(
                Bucket=self.spec.bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                **arguments,
            )
        if not answer.get("ETag"):
            raise StoreError(
                f"{self._what(f'writing part {number} of', key)}: the store gives no ETag for it, "
                "and wants it to complete the object; copy to another store, or in larger parts",
                is_permanent=True,
            )
        return PartInfo(number, answer["ETag"], len(data), crc32c)

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
        what = self._what("completing", key)
        precondition = self._sendable_fence(key, precondition, what)
        arguments: dict[str, Any] = precondition_arguments(precondition)
        if self._trusted:
            arguments |= {"ChecksumType": "FULL_OBJECT", "MpuObjectSize": size_bytes}
            if crc32c is not None:
                arguments["ChecksumCRC32C"] = to_header(crc32c)
        listed: Any = part_arguments(parts, with_checksums=self._sends_checksum)
        try:
            answer = self._client.complete_multipart_upload(
                Bucket=self.spec.bucket,
                Key=key,
                UploadId=upload_id,
                MultipartUpload={"Parts": listed},
                **arguments,
            )
        except (ClientError, BotoCoreError) as error:
            failure = _write_failure(error, what, precondition)
            if isinstance(failure, NotFound) or self._upload_ended(key, upload_id, failure):
                landed = self._find(key, of_parts(size_bytes, parts, crc32c))
                if landed is not None:
                    return landed
                if isinstance(failure, StoreUnavailable):
                    failure = NotFound(f"{what}: the upload is gone; begin a new one")
            raise failure from error
        if "ETag" not in answer:
            raise StoreUnavailable(f"{what}: the answer names no object; look and try again")
        return self._confirmed(key, answer["ETag"], size_bytes, what)

    def abort_upload(self, key: str, upload_id: str) -> None:
        try:
            with mapped(self._what("aborting an upload of", key)):
                self._client.abort_multipart_upload(
                    Bucket=self.spec.bucket, Key=key, UploadId=upload_id
                )
        except NotFound as error:
            if not _is_code(error, "NoSuchUpload"):
                raise

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        what = self._what("listing the open uploads of", prefix)
        return listing.uploads(self._client, self.spec.bucket, prefix, what)

    def list_parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        what = self._what("listing the parts of", key)
        return listing.parts(self._client, self.spec.bucket, key, upload_id, what)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        what = self._what("deleting", check_key(key))
        fence = self._sendable_fence(key, Precondition(if_match=if_match), what)
        condition: dict[str, Any] = precondition_arguments(fence)
        with mapped(what):
            try:
                self._client.delete_object(Bucket=self.spec.bucket, Key=key, **condition)
            except ClientError as error:
                if not condition or code_of(error) != "NotImplemented":
                    raise
                self._client.delete_object(Bucket=self.spec.bucket, Key=key)

    def close(self) -> None:
        self._client.close()

    def _what(self, verb: str, key: str) -> str:
        at = f" at {self.spec.endpoint_url}" if self.spec.endpoint_url else ""
        return f"{verb} s3://{self.spec.bucket}/{key}{at}"

    def _head(self, key: str, *, with_checksum: bool) -> dict[str, Any]:
        mode: dict[str, Any] = {"ChecksumMode": "ENABLED"} if with_checksum else {}
        return self._head_object(Bucket=self.spec.bucket, Key=key, **mode)

    def _head_object(self, **arguments: Any) -> dict[str, Any]:
        try:
            return dict(self._client.head_object(**arguments))
        except ClientError as error:
            if code_of(error) == "400":
                # An answer to HEAD has no body, and so no code: this asks for the reason.
                self._client.list_objects_v2(Bucket=self.spec.bucket, MaxKeys=1)
            raise

    def _sendable_fence(self, key: str, fence: Precondition, what: str) -> Precondition:
        """The precondition as the store can be sent it. 1 call for a `time_pin`, else none.

        No store knows a condition on time and size for a write, so it is looked first.

        Raises:
            PreconditionFailed: it is another version.
        """
        if not is_time_pin(fence.if_match):
            return fence
        try:
            with mapped(what):
                head = self._head(key, with_checksum=False)
        except NotFound as error:
            raise PreconditionFailed(f"{what}: the object is gone; list it again") from error
        _require_pin(head, head["ContentLength"], fence.if_match, what)
        return UNCONDITIONAL

    def _find(self, key: str, sent: Fingerprint) -> ObjectInfo | None:
        """The object at `key` if it is what was sent; None when it is not, or is not ours to see.

        Raises:
            Throttled, StoreUnavailable: it cannot be told now; ask again.
        """
        try:
            head = self._head(key, with_checksum=self._sends_checksum)
        except (ClientError, BotoCoreError) as error:
            self._raise_passing(error, key)
            return None
        return info_of_head(key, head, trusted=self._trusted) if sent.fits(head) else None

    def _upload_ended(self, key: str, upload_id: str, failure: SkyplaneError) -> bool:
        """Whether the upload is gone although its completion failed: then it may be the object.

        Raises:
            Throttled, StoreUnavailable: it cannot be told now; complete again.
        """
        if not isinstance(failure, StoreUnavailable | PreconditionFailed):
            return False
        try:
            self._client.list_parts(
                Bucket=self.spec.bucket, Key=key, UploadId=upload_id, MaxParts=1
            )
        except (ClientError, BotoCoreError) as error:
            self._raise_passing(error, key)
            return isinstance(error, ClientError) and code_of(error) == "NoSuchUpload"
        return False

    def _raise_passing(self, error: ClientError | BotoCoreError, key: str) -> None:
        """A look that failed in transit decides nothing, least of all a refusal."""
        failure = translate(error, self._what("looking at", key))
        if isinstance(failure, (*WAITED_FOR, StoreUnavailable)):
            raise failure from error

    def _confirmed(self, key: str, etag: str, size_bytes: int, what: str) -> ObjectInfo:
        """Look at the completed object, and hold it to its size.

        Its checksum is for the caller to compare, who knows what to do with a bad object:
        it is there already, for everybody to read.
        """
        with mapped(what):
            head = self._head(key, with_checksum=self._trusted)
        # A server that gives no ETag here has given one for the completion.
        if head.get("ETag", etag).strip('"') != etag.strip('"'):
            raise PreconditionFailed(
                f"{what}: another object was written over it at once; list it again"
            )
        if head["ContentLength"] != size_bytes:
            raise StoreError(
                f"{what}: the store made {head['ContentLength']} bytes of it, not {size_bytes}"
            )
        return info_of_head(key, head, trusted=self._trusted)


def _require_pin(
    answer: Mapping[str, Any], size_bytes: int, if_match: str | None, what: str
) -> None:
    """Some servers do not know If-Match on a read and answer with whatever is there."""
    if if_match is None:
        return
    if is_time_pin(if_match):
        found = time_pin(answer["LastModified"].timestamp(), size_bytes)
    else:
        found = answer.get("ETag", "")
    if found.strip('"') != if_match.strip('"'):
        raise PreconditionFailed(f"{what}: it is no longer the version {if_match}; list it again")


def _require_range(answer: Mapping[str, Any], offset: int, last: int, what: str) -> int:
    """The size of the whole object, from the answer to a request for that range."""
    status = answer["ResponseMetadata"]["HTTPStatusCode"]
    content_range = answer.get("ContentRange", "")
    if status != 206 or not content_range.startswith(f"bytes {offset}-{last}/"):
        raise StoreUnavailable(
            f"{what}: asked for bytes {offset} to {last}, the answer is {status} with "
            f"{content_range or 'no range'}; read the range again"
        )
    whole = content_range.partition("/")[2]
    # A server may not say it (`*`); then no time pin fits.
    return int(whole) if whole.isdecimal() else -1


def _write_failure(
    error: ClientError | BotoCoreError, what: str, precondition: Precondition
) -> SkyplaneError:
    # If-Match on an object that is gone is answered 404, not 412.
    if (
        precondition.if_match is not None
        and isinstance(error, ClientError)
        and code_of(error) == "NoSuchKey"
    ):
        return PreconditionFailed(f"{what}: the object to be replaced is gone; list it again")
    return translate(error, what)


def _is_code(failure: SkyplaneError, code: str) -> bool:
    cause = failure.__cause__
    return isinstance(cause, ClientError) and code_of(cause) == code
