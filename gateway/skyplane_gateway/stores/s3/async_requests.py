"""Requests to S3 for small objects over asyncio, through aiohttp, signed by botocore."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
from botocore.exceptions import BotoCoreError
from multidict import CIMultiDictProxy
from yarl import URL

from skyplane_gateway.objects import (
    Body,
    ObjectAttributes,
    ObjectInfo,
    Precondition,
    StoreSpec,
    is_time_pin,
)
from skyplane_gateway.stores.async_requests import Unsettled, WholeObject
from skyplane_gateway.stores.http_session import http_session
from skyplane_gateway.stores.s3.bucket import Bucket
from skyplane_gateway.stores.s3.request_parameters import RequestParameters
from skyplane_gateway.stores.s3.requests import (
    attribute_arguments,
    attributes_of,
    full_checksum,
    not_carried_of,
    precondition_arguments,
    to_header,
)
from skyplane_gateway.stores.s3.signing import Signing, signing_of

log = logging.getLogger(__name__)

Headers = CIMultiDictProxy[str]

#: Header -> the name of its value in boto3's requests and answers.
_NAMES: Final = {
    "Cache-Control": "CacheControl",
    "Content-Disposition": "ContentDisposition",
    "Content-Encoding": "ContentEncoding",
    "Content-Language": "ContentLanguage",
    "Content-Type": "ContentType",
    "Expires": "ExpiresString",
    "If-Match": "IfMatch",
    "If-None-Match": "IfNoneMatch",
    "x-amz-checksum-crc32c": "ChecksumCRC32C",
    "x-amz-checksum-type": "ChecksumType",
    "x-amz-storage-class": "StorageClass",
    "x-amz-tagging-count": "TagCount",
    "x-amz-website-redirect-location": "WebsiteRedirectLocation",
}
_METADATA: Final = "x-amz-meta-"


def open_requests(bucket: Bucket, spec: StoreSpec) -> S3AsyncRequests | None:
    """The requests of a bucket; None where they need another signature than SigV4."""
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

    def __init__(self, bucket: Bucket, signing: Signing, parameters: RequestParameters) -> None:
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
        if length:
            headers["Range"] = f"bytes=0-{length - 1}"
        async with self._answer(method, key, headers, expected) as answer:
            _require_whole(answer.headers, length)
            if if_match is not None and not _is_same(answer.headers.get("ETag"), if_match):
                raise Unsettled("the answer is another version")
            data = await answer.read()
            found = _boto_answer(answer.headers)
        if len(data) != length:
            raise Unsettled("the answer ended early")
        return WholeObject(data, attributes_of(found), not_carried_of(found))

    async def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes,
        precondition: Precondition,
        crc32c: int,
    ) -> ObjectInfo:
        if is_time_pin(precondition.if_match):
            raise Unsettled("a time is compared by `S3Store.put`")
        arguments = {**attribute_arguments(attributes), **precondition_arguments(precondition)}
        if self._bucket.sends_checksum:
            arguments["ChecksumCRC32C"] = to_header(crc32c)
        sent = {**_headers(arguments), **self._parameters.headers(key, writes=True)}
        async with self._answer("PUT", key, sent, 200, data) as answer:
            headers = answer.headers
            await answer.read()
        if "ETag" not in headers:
            raise Unsettled("the answer names no version")
        stored = full_checksum(_boto_answer(headers)) if self._bucket.trusts_checksum else None
        return ObjectInfo(
            key=key,
            size_bytes=len(data),
            etag=headers["ETag"],
            last_modified=_unix_s(headers.get("Date")),
            crc32c=stored,
            attributes=attributes,
        )

    @asynccontextmanager
    async def _answer(
        self, method: str, key: str, headers: Mapping[str, str], expected: int, data: Body = b""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to one request. Raises Unsettled for every other status."""
        url, signed = self._signing.sign(method, key, headers, data)
        try:
            async with http_session().request(
                method,
                URL(url, encoded=True),
                headers=signed,
                data=data if method == "PUT" else None,
                allow_redirects=False,
                ssl=self._signing.ssl or True,
                proxy=self._signing.proxy,
            ) as answer:
                if answer.status != expected:
                    raise Unsettled(f"the answer is {answer.status}")
                yield answer
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unsettled(f"{type(error).__name__}: {error}") from error


def _headers(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers for boto3's arguments. Raises Unsettled for text that a header cannot hold."""
    pairs = [(header, arguments[name]) for header, name in _NAMES.items() if name in arguments]
    pairs += [(_METADATA + name, text) for name, text in arguments.get("Metadata", {}).items()]
    if not all(name.isascii() and text.isascii() and text.isprintable() for name, text in pairs):
        raise Unsettled("`S3Store.put` decides about this text")
    return dict(pairs)


def _boto_answer(headers: Headers) -> dict[str, Any]:
    """What boto3 would return for these headers."""
    found: dict[str, Any] = {
        name: _text(headers[header]) for header, name in _NAMES.items() if header in headers
    }
    found["Metadata"] = {
        header[len(_METADATA) :]: _text(value)
        for header, value in headers.items()
        if header.lower().startswith(_METADATA)
    }
    return found


def _text(value: str) -> str:
    """The text as http.client decodes it: aiohttp decodes UTF-8, http.client Latin-1."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("latin-1")


def _is_same(etag: str | None, other: str) -> bool:
    return etag is not None and etag.strip('"') == other.strip('"')


def _require_whole(headers: Headers, length: int) -> None:
    """The answer must be the whole object of that length."""
    if length == 0:
        is_whole = headers.get("Content-Length", "0") == "0"
    else:
        is_whole = headers.get("Content-Range", "").startswith(f"bytes 0-{length - 1}/")
    if not is_whole:
        raise Unsettled("the answer is another range")


def _unix_s(date: str | None) -> float:
    """Unix seconds of a `Date` header; 0.0 for none."""
    return 0.0 if date is None else parsedate_to_datetime(date).timestamp()
