"""Google Cloud Storage: through its HTTP APIs; google-cloud-storage reads an upload's marker.

The version of an object is its generation. Bodies are sent with their CRC32C. The service checks
it, and reports that of the whole object also for objects of several parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

import requests

from skyplane_gateway.common.errors import NotFound, PreconditionFailed, StoreError
from skyplane_gateway.common.kept_properties import with_class
from skyplane_gateway.common.objects import (
    MIB,
    UNCONDITIONAL,
    Body,
    Credentials,
    ObjectAttributes,
    ObjectInfo,
    Precondition,
    StoreCapabilities,
    StoreSpec,
)
from skyplane_gateway.stores.async_requests import AsyncRequests
from skyplane_gateway.stores.base import EmptyReader, ObjectStore, RangeReader, Reader, Wants
from skyplane_gateway.stores.gcs import listing
from skyplane_gateway.stores.gcs.bucket import GcsBucket
from skyplane_gateway.stores.gcs.client import GcsClient
from skyplane_gateway.stores.gcs.compose import MAX_SOURCES
from skyplane_gateway.stores.gcs.error_mapping import mapped
from skyplane_gateway.stores.gcs.requests import (
    attributes_of_headers,
    info_of,
    not_carried_of_headers,
    read_headers,
    resource_of,
    stated_in,
)
from skyplane_gateway.stores.gcs.uploads import GcsUploads
from skyplane_gateway.stores.key_rules import check_gcs_key
from skyplane_gateway.stores.response_validation import require_etag, require_range

_TIB: Final = MIB * MIB
_CAPABILITIES: Final = StoreCapabilities(
    trusts_checksum=True,
    min_part_bytes=1,
    max_part_bytes=5 * 1024 * MIB,
    max_parts=10_000,
    max_object_bytes=5 * _TIB,
    joined_parts=MAX_SOURCES,
    # More writes of one name are throttled, and then the whole bucket gets fewer requests.
    rewrite_s=1.0,
    server_side_copy="objects",
)


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> ObjectStore:
    """Called by `open_without_retries`."""
    return GcsStore(spec, credentials)


class GcsStore:
    """See `ObjectStore`."""

    def __init__(self, spec: StoreSpec, credentials: Credentials | None = None) -> None:
        self.spec = spec
        self.capabilities = _CAPABILITIES
        self._client = GcsClient(spec, credentials)
        self.server_clock = self._client.server_clock
        self._bucket = GcsBucket(self._client)
        self._uploads = uploads = GcsUploads(self._bucket)
        self.put_part, self.copy_part = uploads.put_part, uploads.copy_part
        self.complete_upload, self.abort_upload = uploads.complete, uploads.abort
        self.list_uploads, self.list_parts = uploads.open_uploads, uploads.parts

    @cached_property
    def async_requests(self) -> AsyncRequests | None:
        """See `requests_of`. Without httptools threads send all requests."""
        try:
            from skyplane_gateway.stores.gcs.async_requests import open_requests
        except ModuleNotFoundError:
            return None
        return open_requests(self._client)

    def check(self, prefix: str = "") -> None:
        what = self._client.doing("listing", prefix)
        url = self._client.urls.objects(prefix=prefix, maxResults="1", fields="kind")
        self._client.send_for_json("GET", url, what, "storage#objects")

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        what = self._client.doing("listing", prefix)
        return listing.objects(self._client, prefix, start_after, what)

    def head(self, key: str) -> ObjectInfo:
        what = self._client.doing("looking at", check_gcs_key(key))
        return info_of(key, self._bucket.look(key, what))

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        what = self._client.doing("reading", check_gcs_key(key))
        if length == 0:
            info = info_of(key, self._bucket.look(key, what))
            require_etag(info.etag, if_match, what)
            return EmptyReader(info.attributes, info.not_carried)
        answer = self._client.send(
            "GET",
            self._client.urls.body(key),
            what,
            headers=read_headers(offset, length, if_match),
            # 200 is an answer without the range.
            expected=(200, 206),
            stream=True,
        )
        headers = answer.headers
        try:
            require_etag(headers.get("x-goog-generation"), if_match, what)
            require_range(answer.status_code, headers, offset, length, what)
        except StoreError:
            answer.close()
            raise
        found = attributes_of_headers(headers), not_carried_of_headers(headers)
        reader = GcsReader(answer, length, what, *found)
        reader.stated = stated_in(headers, length)
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
        what = self._client.doing("writing", check_gcs_key(key))
        attributes = with_class(attributes, self.spec, key)
        made = self._bucket.insert(
            key,
            data,
            what,
            resource=resource_of(attributes, crc32c),
            precondition=precondition,
            crc32c=crc32c,
        )
        return info_of(key, made)

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self._uploads.create(check_gcs_key(key), with_class(attributes, self.spec, key))

    def create_copy_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self.create_upload(key, attributes)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        what = self._client.doing("deleting", check_gcs_key(key))
        try:
            self._bucket.delete(key, what, if_match=if_match)
        except PreconditionFailed:
            self._bucket.look(key, what)  # As at other stores: NotFound for one that is gone.
            raise
        except NotFound:
            if if_match is not None:
                raise

    def close(self) -> None:
        self._client.close()


class GcsReader(RangeReader[requests.Response]):
    """See `Reader`. Holds one connection of the pool until its end or `close`."""

    def _fill(self, view: memoryview) -> int:
        with mapped(self._what):
            return int(self._source.raw.readinto(view))

    def close(self) -> None:
        self._source.close()
