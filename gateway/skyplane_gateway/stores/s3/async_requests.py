"""Requests to S3 for small objects over asyncio, signed by botocore."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from botocore.exceptions import BotoCoreError

from skyplane_gateway.common.kept_properties import KEEP
from skyplane_gateway.common.objects import (
    Body,
    ObjectAttributes,
    ObjectInfo,
    Precondition,
    StoreSpec,
    is_time_pin,
)
from skyplane_gateway.stores.async_requests import Unsettled, WholeObject, unsettled
from skyplane_gateway.stores.checksums import range_of_whole
from skyplane_gateway.stores.error_rules import unix_s
from skyplane_gateway.stores.http_client import HttpResponse, send
from skyplane_gateway.stores.response_validation import require_etag
from skyplane_gateway.stores.s3.bucket import S3Bucket
from skyplane_gateway.stores.s3.client import CHECKSUM_MODE
from skyplane_gateway.stores.s3.request_parameters import RequestParameters
from skyplane_gateway.stores.s3.requests import (
    attribute_arguments,
    attributes_of,
    full_checksum,
    not_carried_of,
    precondition_arguments,
)
from skyplane_gateway.stores.s3.signing import Signing, signing_of

log = logging.getLogger(__name__)

#: Header -> the name of its value in boto3's requests and answers.
_NAMES: Final = {
    "Cache-Control": "CacheControl",
    "Content-Disposition": "ContentDisposition",
    "Content-Encoding": "ContentEncoding",
    "Content-Language": "ContentLanguage",
    "Content-MD5": "ContentMD5",
    "Content-Type": "ContentType",
    "ETag": "ETag",
    "Expires": "ExpiresString",
    "If-Match": "IfMatch",
    "If-None-Match": "IfNoneMatch",
    "x-amz-checksum-crc32": "ChecksumCRC32",
    "x-amz-checksum-crc32c": "ChecksumCRC32C",
    "x-amz-checksum-crc64nvme": "ChecksumCRC64NVME",
    "x-amz-checksum-type": "ChecksumType",
    "x-amz-missing-meta": "MissingMeta",
    "x-amz-object-lock-event-hold": "ObjectLockEventHold",
    "x-amz-object-lock-legal-hold": "ObjectLockLegalHoldStatus",
    "x-amz-object-lock-mode": "ObjectLockMode",
    "x-amz-server-side-encryption": "ServerSideEncryption",
    "x-amz-server-side-encryption-customer-algorithm": "SSECustomerAlgorithm",
    "x-amz-storage-class": "StorageClass",
    "x-amz-tagging": "Tagging",
    "x-amz-tagging-count": "TagCount",
    "x-amz-website-redirect-location": "WebsiteRedirectLocation",
}
_METADATA: Final = "x-amz-meta-"
_NAMES_OF_ANSWERS: Final = {header.lower(): name for header, name in _NAMES.items()}


def open_requests(bucket: S3Bucket, spec: StoreSpec) -> S3AsyncRequests | None:
    """The requests of a bucket; None where they need more than one, or other than SigV4."""
    if spec.option("tags") == KEEP:
        return None  # Each read has a second request.
    is_anonymous = spec.option("anonymous") == "true"
    try:
        signing = signing_of(
            bucket.client,
            spec.bucket,
            None if is_anonymous else bucket.session.get_credentials(),
            is_anonymous=is_anonymous,
            signs_payload=spec.option("payload") == "signed",
            ca_bundle=bucket.session.get_config_variable("ca_bundle"),
        )
    except (BotoCoreError, OSError) as error:
        log.info("requests to %s go through boto3: %s", spec.place, error)
        return None
    return None if signing is None else S3AsyncRequests(bucket, signing, RequestParameters(spec))


class S3AsyncRequests:
    """See `AsyncRequests`."""

    def __init__(self, bucket: S3Bucket, signing: Signing, parameters: RequestParameters) -> None:
        self._bucket = bucket
        self._parameters = parameters
        self._signing = signing

    async def read(self, key: str, *, length: int, if_match: str | None) -> WholeObject:
        if is_time_pin(if_match):
            raise Unsettled("a time is compared by `S3Store.read`")
        headers = self._parameters.headers(key, writes=False)
        if if_match is not None:
            headers["If-Match"] = if_match
        method, expected = ("HEAD", 200) if length == 0 else ("GET", 206)
        if self._bucket.sends_checksum:
            headers[CHECKSUM_MODE] = "ENABLED"
        if length and self._bucket.trusts_checksum:
            expected = 200  # AWS leaves checksums out of answers to ranges.
        elif length:
            headers["Range"] = f"bytes=0-{length - 1}"
        answer = await self._answer(method, key, headers, expected)
        _require_whole(answer, length)
        with unsettled():
            require_etag(answer.headers.get("etag"), if_match, key)
        if len(answer.body) != length:
            raise Unsettled("the answer ended early")
        found = _boto_answer(answer)
        stated = self._bucket.stated(found)
        return WholeObject(answer.body, attributes_of(found), not_carried_of(found), stated)

    async def head(self, key: str) -> ObjectInfo:
        headers = self._parameters.headers(key, writes=False)
        answer = await self._answer("HEAD", key, headers, 200)
        found = answer.headers
        if not {"content-length", "etag", "last-modified"} <= found.keys():
            raise Unsettled("`S3Store.head` decides about this answer")
        attributes = attributes_of(_boto_answer(answer))
        modified_s = _unix_s(found["last-modified"])
        return ObjectInfo(
            key, int(found["content-length"]), found["etag"], modified_s, attributes=attributes
        )

    async def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes,
        precondition: Precondition,
        crc32c: int,
    ) -> ObjectInfo:
        if self._bucket.needs_check(precondition):
            raise Unsettled("`S3Store.put` looks at the object")
        arguments = {**attribute_arguments(attributes), **precondition_arguments(precondition)}
        arguments |= self._bucket.body_checksum(data, crc32c)
        sent = {**_headers(arguments), **self._parameters.headers(key, writes=True)}
        answer = await self._answer("PUT", key, sent, 200, data)
        headers = answer.headers
        if not headers.get("etag") or answer.body:
            raise Unsettled("the answer names no version")
        stored = full_checksum(_boto_answer(answer)) if self._bucket.trusts_checksum else None
        return ObjectInfo(
            key=key,
            size_bytes=len(data),
            etag=headers["etag"],
            last_modified=_unix_s(headers.get("date", "")),
            crc32c=stored,
            attributes=attributes,
        )

    async def _answer(
        self, method: str, key: str, headers: Mapping[str, str], expected: int, data: Body = b""
    ) -> HttpResponse:
        url, signed = self._signing.sign(method, key, headers, data)
        return await send(method, url, signed, data, expected=expected, way=self._signing.way)


def _headers(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers for boto3's arguments. Raises Unsettled for text that a header cannot hold."""
    pairs = [(header, arguments[name]) for header, name in _NAMES.items() if name in arguments]
    pairs += [(_METADATA + name, text) for name, text in arguments.get("Metadata", {}).items()]
    if not all(name.isascii() and text.isascii() and text.isprintable() for name, text in pairs):
        raise Unsettled("`S3Store.put` decides about this text")
    return dict(pairs)


def _boto_answer(answer: HttpResponse) -> dict[str, Any]:
    """What boto3 would return for these headers."""
    found: dict[str, Any] = {}
    for header, text in answer.pairs:
        name = _NAMES_OF_ANSWERS.get(header.lower())
        if name is not None:
            is_list = name == "ContentEncoding" and name in found
            found[name] = f"{found[name]}, {text}" if is_list else text
    found["Metadata"] = {
        name[len(_METADATA) :]: text
        for name, text in answer.pairs
        if name.lower().startswith(_METADATA)
    }
    return found


def _require_whole(answer: HttpResponse, length: int) -> None:
    """The answer must be the whole object of that length."""
    found = answer.headers
    if answer.status == 206:
        is_whole = found.get("content-range") == range_of_whole(length)
    else:
        is_dated = _unix_s(found.get("last-modified", "")) > 0
        is_whole = is_dated and found.get("content-length") == str(length)
    if not is_whole:
        raise Unsettled("the answer is another range")


@lru_cache(maxsize=16)
def _unix_s(date: str) -> float:
    """Unix seconds of a `Date` header; 0.0 for none."""
    return unix_s(date) or 0.0
