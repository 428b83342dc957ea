"""Requests to Google Cloud Storage for small objects over asyncio, through aiohttp."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from multidict import CIMultiDict
from requests.utils import get_environ_proxies, select_proxy
from yarl import URL

from skyplane_gateway.errors import ConfigurationInvalid, StoreError
from skyplane_gateway.keeping import placed
from skyplane_gateway.objects import Body, ObjectAttributes, ObjectInfo, Precondition
from skyplane_gateway.stores.async_requests import Unsettled, WholeObject
from skyplane_gateway.stores.ca_bundle import tls_context
from skyplane_gateway.stores.gcs.client import Client
from skyplane_gateway.stores.gcs.requests import (
    OBJECT_FIELDS,
    Related,
    attributes_of_headers,
    info_of,
    not_carried_of_headers,
    precondition_query,
    read_headers,
    resource_of,
)
from skyplane_gateway.stores.http_session import decoded, http_session

log = logging.getLogger(__name__)


def open_requests(client: Client) -> GcsAsyncRequests | None:
    """The requests of a bucket, with the certificates and the proxy that `requests` uses.

    None where the certificates cannot be read: then the request in a thread says so.
    """
    base = client.urls.base
    proxy = select_proxy(base, get_environ_proxies(base, None))
    if not base.startswith("https:"):
        return GcsAsyncRequests(client, True, proxy)
    try:
        return GcsAsyncRequests(client, tls_context(), proxy)
    except ConfigurationInvalid as error:
        log.info("requests to gs://%s go through threads: %s", client.spec.bucket, error)
        return None


class GcsAsyncRequests:
    """See `AsyncRequests`."""

    def __init__(self, client: Client, tls: ssl.SSLContext | bool, proxy: str | None) -> None:
        self._client = client
        self._ssl = tls
        self._proxy = proxy

    async def read(self, key: str, *, length: int, if_match: str | None) -> WholeObject:
        if length == 0:
            url = self._client.urls.object(key, fields=OBJECT_FIELDS)
            async with self._answer("GET", url, {}, 200) as answer:
                info = info_of(key, await _json(answer))
            if info.size_bytes or (if_match is not None and info.etag != if_match):
                raise Unsettled("the answer is another version")
            return WholeObject(b"", info.attributes or ObjectAttributes(), info.not_carried)
        url = self._client.urls.body(key)
        async with self._answer("GET", url, read_headers(0, length, if_match), 206) as answer:
            headers = _headers(answer)
            if headers.get("Content-Range") != f"bytes 0-{length - 1}/{length}":
                raise Unsettled("the answer is another range")
            if if_match is not None and headers.get("x-goog-generation") != if_match:
                raise Unsettled("the answer is another version")
            data = await answer.read()
        if len(data) != length:
            raise Unsettled("the answer ended early")
        return WholeObject(data, attributes_of_headers(headers), not_carried_of_headers(headers))

    async def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes,
        precondition: Precondition,
        crc32c: int,
    ) -> ObjectInfo:
        resource = resource_of(placed(attributes, self._client.spec, key), crc32c)
        related = Related(resource, data)
        query = {"fields": OBJECT_FIELDS, **precondition_query(precondition)}
        url = self._client.urls.upload(key, **query)
        headers = {"Content-Type": related.content_type}
        async with self._answer("POST", url, headers, 200, b"".join(related)) as answer:
            return info_of(key, await _json(answer))

    @asynccontextmanager
    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], expected: int, data: Body = b""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to one request. Raises Unsettled for every other status."""
        try:
            identity = self._client.authorization()
        except StoreError as error:
            raise Unsettled(error.message) from error
        if identity is None:
            raise Unsettled("the token is being renewed, which a thread has to wait for")
        try:
            async with http_session().request(
                method,
                URL(url, encoded=True),
                headers={**headers, **identity},
                data=data or None,
                allow_redirects=False,
                ssl=self._ssl,
                proxy=self._proxy,
            ) as answer:
                if answer.status != expected:
                    raise Unsettled(f"the answer is {answer.status}")
                yield answer
        except (TimeoutError, aiohttp.ClientError, OSError, StoreError, ValueError) as error:
            raise Unsettled(f"{type(error).__name__}: {error}") from error


async def _json(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await answer.read())
    return found


def _headers(answer: aiohttp.ClientResponse) -> CIMultiDict[str]:
    return CIMultiDict((name, decoded(text)) for name, text in answer.headers.items())
