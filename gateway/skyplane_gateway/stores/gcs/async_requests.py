"""Requests to Google Cloud Storage for small objects over asyncio."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from requests.structures import CaseInsensitiveDict

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.kept_properties import with_class
from skyplane_gateway.common.objects import Body, ObjectAttributes, ObjectInfo, Precondition
from skyplane_gateway.stores.async_requests import TlsAndProxy, Unsettled, WholeObject, unsettled
from skyplane_gateway.stores.checksums import range_of_whole
from skyplane_gateway.stores.gcs.client import GcsClient
from skyplane_gateway.stores.gcs.requests import (
    OBJECT_FIELDS,
    MultipartRelatedBody,
    attributes_of_headers,
    info_of,
    not_carried_of_headers,
    precondition_query,
    read_headers,
    resource_of,
    stated_in,
)
from skyplane_gateway.stores.http_client import HttpResponse, send
from skyplane_gateway.stores.response_validation import read_json, require_etag
from skyplane_gateway.stores.tls_and_proxy import tls_and_proxy_to

log = logging.getLogger(__name__)


def open_requests(client: GcsClient) -> GcsAsyncRequests | None:
    """The requests of a bucket, with the certificates and the proxy that `requests` uses.

    None where the certificates cannot be read: then the request in a thread says so.
    """
    try:
        return GcsAsyncRequests(client, tls_and_proxy_to(client.urls.base))
    except ConfigurationInvalid as error:
        log.info("requests to gs://%s go through threads: %s", client.spec.bucket, error)
        return None


class GcsAsyncRequests:
    """See `AsyncRequests`."""

    def __init__(self, client: GcsClient, way: TlsAndProxy) -> None:
        self._client = client
        self._way = way

    async def read(self, key: str, *, length: int, if_match: str | None) -> WholeObject:
        if length == 0:
            info = await self.head(key)
            with unsettled():
                require_etag(info.etag, if_match, key)
            if info.size_bytes:
                raise Unsettled("the answer is another version")
            return WholeObject(b"", info.attributes or ObjectAttributes(), info.not_carried)
        url = self._client.urls.body(key)
        answer = await self._answer("GET", url, read_headers(0, length, if_match), 206)
        headers = CaseInsensitiveDict(answer.pairs)
        if headers.get("Content-Range") != range_of_whole(length):
            raise Unsettled("the answer is another range")
        with unsettled():
            require_etag(headers.get("x-goog-generation"), if_match, key)
        if len(answer.body) != length:
            raise Unsettled("the answer ended early")
        # One header for each checksum.
        hashes = (text for name, text in answer.pairs if name.lower() == "x-goog-hash")
        headers["x-goog-hash"] = ",".join(hashes)
        return WholeObject(
            answer.body,
            attributes_of_headers(headers),
            not_carried_of_headers(headers),
            stated_in(headers, length),
        )

    async def head(self, key: str) -> ObjectInfo:
        url = self._client.urls.object(key, fields=OBJECT_FIELDS)
        return _info(key, await self._answer("GET", url, {}, 200))

    async def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes,
        precondition: Precondition,
        crc32c: int,
    ) -> ObjectInfo:
        resource = resource_of(with_class(attributes, self._client.spec, key), crc32c)
        related = MultipartRelatedBody(resource, data)
        query = {"fields": OBJECT_FIELDS, **precondition_query(precondition)}
        url = self._client.urls.upload(key, **query)
        headers = {"Content-Type": related.content_type}
        info = _info(key, await self._answer("POST", url, headers, 200, b"".join(related)))
        if info.size_bytes != len(data):
            raise Unsettled("the answer is about another object")
        return info

    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], expected: int, data: Body = b""
    ) -> HttpResponse:
        with unsettled():
            identity = self._client.authorization()
        if identity is None:
            raise Unsettled("the token is being renewed, which a thread has to wait for")
        sent = {**headers, **identity}
        return await send(method, url, sent, data, expected=expected, way=self._way)


def _info(key: str, answer: HttpResponse) -> ObjectInfo:
    """Raises Unsettled where the answer tells of no object."""
    with unsettled():
        return info_of(key, read_json(answer.body, "storage#object"))
