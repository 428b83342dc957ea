"""Requests to Azure Blob Storage for small objects over asyncio."""

from __future__ import annotations

from azure.core.exceptions import AzureError

from skyplane_gateway.common.kept_properties import with_class
from skyplane_gateway.common.objects import Body, ObjectAttributes, ObjectInfo, Precondition
from skyplane_gateway.stores.async_requests import Unsettled, WholeObject, unsettled
from skyplane_gateway.stores.azure.client import AzureRequest, Container
from skyplane_gateway.stores.azure.requests import (
    attributes_of,
    info_of,
    match_headers,
    not_carried_of,
    put_headers,
    size_of,
    written_info,
)
from skyplane_gateway.stores.http_client import HttpResponse, send
from skyplane_gateway.stores.response_validation import require_etag, require_range


class AzureAsyncRequests:
    """See `AsyncRequests`."""

    def __init__(self, container: Container) -> None:
        self._container = container

    async def read(self, key: str, *, length: int, if_match: str | None) -> WholeObject:
        headers = match_headers(if_match)
        wanted = AzureRequest("HEAD", key, 200, headers)
        if length:
            headers["x-ms-range"] = f"bytes=0-{length - 1}"
            wanted = AzureRequest("GET", key, 206, headers)
        answer = await self._answer(wanted)
        found = answer.headers
        with unsettled():
            if length:
                require_range(answer.status, found, 0, length, key)
            require_etag(found.get("etag"), if_match, key)
            is_other = length == 0 and size_of(found) != 0
        if is_other or len(answer.body) != length:
            raise Unsettled("the answer has another length")
        stated = self._container.stated(found, length)
        return WholeObject(answer.body, attributes_of(found), not_carried_of(found), stated)

    async def head(self, key: str) -> ObjectInfo:
        answer = await self._answer(AzureRequest("HEAD", key, 200))
        return info_of(key, answer.headers, trusted=self._container.trusts_checksum)

    async def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes,
        precondition: Precondition,
        crc32c: int,
    ) -> ObjectInfo:
        if key.startswith("/") or "//" in key:
            raise Unsettled("`AzureStore.put` looks whether the account keeps empty segments")
        attributes = with_class(attributes, self._container.spec, key) or attributes
        with unsettled():
            headers = put_headers(data, attributes, precondition, crc32c, key)
        answer = await self._answer(AzureRequest("PUT", key, 201, headers), data)
        trusted = crc32c if self._container.trusts_checksum else None
        with unsettled():
            return written_info(key, answer.headers, len(data), attributes, trusted)

    async def _answer(self, wanted: AzureRequest, body: Body = b"") -> HttpResponse:
        if not self._container.signer.is_ready:
            raise Unsettled("the token is being renewed, which a thread has to wait for")
        try:
            url, headers = self._container.signed(wanted, len(body))
        except AzureError as error:
            raise Unsettled(f"{type(error).__name__}: {error}") from error
        answer = await send(
            wanted.method, url, headers, body, expected=wanted.expected, way=self._container.way
        )
        if wanted.method == "PUT" and answer.body:
            raise Unsettled("the answer has a body")
        return answer
