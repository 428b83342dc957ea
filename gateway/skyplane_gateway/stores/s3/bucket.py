"""One S3 bucket: its client, its checksum rules, and requests that several verbs share."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import md5
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from skyplane_gateway.common.errors import NotFound, PreconditionFailed, SkyplaneError, StoreError
from skyplane_gateway.common.kept_properties import KEEP
from skyplane_gateway.common.objects import (
    UNCONDITIONAL,
    Body,
    Credentials,
    ObjectInfo,
    Precondition,
    StoreSpec,
    Tags,
    is_time_pin,
    time_pin,
)
from skyplane_gateway.stores.checksums import Stated, crc32c_of, crc32c_text
from skyplane_gateway.stores.options import checksum_use, uses_md5
from skyplane_gateway.stores.response_validation import require_etag
from skyplane_gateway.stores.s3.client import as_stored, open_client
from skyplane_gateway.stores.s3.error_mapping import code_of, mapped, status_of, translate
from skyplane_gateway.stores.s3.requests import info_of_head, md5_of, stated_of, tags_of
from skyplane_gateway.stores.s3.sdk import BadAnswer


class S3Bucket:
    """A bucket at one endpoint.

    Attributes:
        trusts_checksum: the CRC32C that the store reports is that of the stored bytes.
        sends_checksum: bodies are sent with their CRC32C, else with their MD5.
        checks_copies: the store computes the CRC32C of each part that it copies. Only AWS is
            known to; versitygw reports that of the whole source.
        etag_is_md5: the ETag of an object that one request wrote is its MD5; not in directory
            buckets.
        checks_preconditions: a HEAD takes the place of the precondition of a write.
        reads_tags: reads of an object's attributes also ask for its tags.
    """

    def __init__(self, spec: StoreSpec, credentials: Credentials | None) -> None:
        self.name = spec.bucket
        self.client, self.session = open_client(spec, credentials)
        self.doing = spec.doing
        checksum = checksum_use(spec)
        self.trusts_checksum = checksum == "trusted"
        self.sends_checksum = checksum != "none"
        self.checks_copies = self.trusts_checksum and not spec.endpoint_url
        self.etag_is_md5 = uses_md5(spec) and not spec.bucket.endswith("--x-s3")
        self.checks_preconditions = spec.option("preconditions") == "checked"
        self.reads_tags = spec.option("tags") == KEEP

    def info(self, key: str, answer: Mapping[str, Any]) -> ObjectInfo:
        """The object that a HEAD answer shows."""
        info = info_of_head(key, answer, trusted=self.trusts_checksum)
        return replace(info, md5=md5_of(answer)) if self.etag_is_md5 else info

    def stated(self, answer: Mapping[str, Any]) -> Stated | None:
        """What an answer to GET or HEAD of a whole object states of its bytes."""
        found = stated_of(answer) if self.sends_checksum else None
        return found or Stated.md5(md5_of(answer) if self.etag_is_md5 else None)

    def body_checksum(self, data: Body, crc32c: int | None = None) -> dict[str, str]:
        """The argument by which the service checks a body; it is computed if it is not known.

        A bucket with Object Lock and a default retention takes no body without one (PutObject,
        AWS, 2026-11-26).
        """
        if self.sends_checksum:
            return {"ChecksumCRC32C": crc32c_text(crc32c_of(data) if crc32c is None else crc32c)}
        return {"ContentMD5": b64encode(md5(data, usedforsecurity=False).digest()).decode()}

    def tags(self, key: str) -> Tags | None:
        """The tags of an object; None where they are not asked for. 1 call, or none."""
        if not self.reads_tags:
            return None
        with mapped(self.doing("reading the tags of", key)):
            return tags_of(self.client.get_object_tagging(Bucket=self.name, Key=key))

    def head(self, key: str, *, with_checksum: bool = False, **more: Any) -> dict[str, Any]:
        """The answer to HEAD. Raises ClientError, BotoCoreError."""
        if with_checksum:
            more["ChecksumMode"] = "ENABLED"
        try:
            answer = dict(self.client.head_object(Bucket=self.name, Key=key, **more))
            if "ContentLength" not in answer:
                with as_stored():
                    answer = dict(self.client.head_object(Bucket=self.name, Key=key, **more))
        except ClientError as error:
            if code_of(error) == "400":
                # A HEAD answer has no body, and so no error code: a listing gives the reason.
                self.client.list_objects_v2(Bucket=self.name, Prefix=key, MaxKeys=1)
            raise self.refusal(error, key) from error
        for name in ("ContentLength", "LastModified"):
            if name not in answer:
                raise BadAnswer(why=f"has no {name}")
        return answer

    def get(self, key: str, span: str, **more: Any) -> dict[str, Any]:
        """The answer to GET of a range. Raises ClientError, BotoCoreError."""
        answer: dict[str, Any]
        try:
            answer = dict(self.client.get_object(Bucket=self.name, Key=key, Range=span, **more))
        except ClientError as error:
            raise self.refusal(error, key) from error
        metadata = answer["ResponseMetadata"]
        if metadata["HTTPStatusCode"] == 206 and "content-length" in metadata["HTTPHeaders"]:
            return answer
        answer["Body"].close()
        with as_stored():
            return dict(self.client.get_object(Bucket=self.name, Key=key, Range=span, **more))

    def refusal(self, error: ClientError, key: str) -> ClientError:
        """The error of a request about an object; that of a missing one where it is not there.

        AWS answers 403 for a missing key to a caller who may not list the whole bucket.
        """
        if status_of(error) != 403:
            return error
        try:
            page = self.client.list_objects_v2(Bucket=self.name, Prefix=key, MaxKeys=1)
        except (ClientError, BotoCoreError):
            return error
        if any(row.get("Key") == key for row in page.get("Contents", ())):
            return error
        answer: Any = {**error.response, "Error": {"Code": "NoSuchKey"}}
        return ClientError(answer, error.operation_name)

    def needs_check(self, precondition: Precondition) -> bool:
        """Whether a HEAD has to check a precondition, since the service cannot."""
        is_checked = self.checks_preconditions and precondition != UNCONDITIONAL
        return is_checked or is_time_pin(precondition.if_match)

    def sendable_precondition(
        self, key: str, precondition: Precondition, what: str
    ) -> Precondition:
        """The precondition in a form that the service knows. 1 call where it has none, else none.

        S3 has no write that is conditional on time and size, so HEAD checks a `time_pin`. So it
        does every precondition for a service without conditional writes.
        """
        if not self.needs_check(precondition):
            return precondition
        try:
            with mapped(what):
                head = self.head(key)
        except NotFound as error:
            if precondition.if_absent:
                return UNCONDITIONAL
            raise PreconditionFailed(f"{what}: the object is gone; list it again") from error
        if precondition.if_absent:
            raise PreconditionFailed(f"{what}: there is an object of that name; list it again")
        require_version(head, head["ContentLength"], precondition.if_match, what)
        return UNCONDITIONAL

    def write_failure(
        self, error: ClientError | BotoCoreError, key: str, what: str, precondition: Precondition
    ) -> SkyplaneError:
        """This project's error for a write that failed."""
        if precondition.if_match is not None and isinstance(error, ClientError):
            error = self.refusal(error, key)
        code = code_of(error) if isinstance(error, ClientError) else ""
        # If-Match on an object that is gone is answered 404, not 412.
        if precondition.if_match is not None and code == "NoSuchKey":
            return PreconditionFailed(f"{what}: the object to be replaced is gone; list it again")
        if precondition != UNCONDITIONAL and code == "NotImplemented":
            return StoreError(
                f"{what}: the service has no conditional writes; with the "
                "destination's option preconditions=checked each write looks at the object before, "
                "which does not see writers at the same moment",
                is_permanent=True,
            )
        return translate(error, what)


def require_version(
    answer: Mapping[str, Any], size_bytes: int, if_match: str | None, what: str
) -> None:
    """Raise PreconditionFailed for an answer about another version; see `require_etag`."""
    found = answer.get("ETag")
    if is_time_pin(if_match):
        modified = answer.get("LastModified")
        found = None if modified is None else time_pin(modified.timestamp(), size_bytes)
    require_etag(found, if_match, what)
