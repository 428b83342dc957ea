"""The store of Azure Blob Storage.

Requests are sent by urllib3, signed with credentials of Azure's SDK. The SDK's own verbs read a
whole range into memory and send a whole part under one timeout of the socket.

Every body is sent with its CRC64, so that the service refuses damaged bytes. Our CRC32C of the
whole goes to the blob's metadata. It is a claim of the writer, not a checksum that the service
computed, so it counts only with the option `checksum=trusted`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from skyplane_gateway.common.errors import InvalidKey, NotFound, SkyplaneError, StoreError
from skyplane_gateway.common.kept_properties import with_class, with_tags
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
    Tags,
)
from skyplane_gateway.stores.async_requests import AsyncRequests
from skyplane_gateway.stores.azure import listing
from skyplane_gateway.stores.azure.client import AzureReader, AzureRequest, AzureResponse, Container
from skyplane_gateway.stores.azure.error_mapping import Refused, mapped
from skyplane_gateway.stores.azure.requests import (
    attributes_of,
    info_of,
    match_headers,
    not_carried_of,
    put_headers,
    size_of,
    tags_of,
    written_info,
)
from skyplane_gateway.stores.azure.uploads import AzureUploads
from skyplane_gateway.stores.base import EmptyReader, ObjectStore, Reader, Wants
from skyplane_gateway.stores.checksums import verify
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER, check_azure_key
from skyplane_gateway.stores.response_validation import require_etag, require_made, require_range

log = logging.getLogger(__name__)

_MAX_BLOCKS = 50_000
_MAX_BLOCK_BYTES = 4000 * MIB


def open_from_spec(spec: StoreSpec, credentials: Credentials | None) -> ObjectStore:
    """Called by `open_without_retries`."""
    return AzureStore(spec, credentials)


class AzureStore:
    """See `ObjectStore`."""

    def __init__(self, spec: StoreSpec, credentials: Credentials | None = None) -> None:
        self.spec = spec
        self._container = Container(spec, credentials)
        self.server_clock = self._container.server_clock
        self._uploads = AzureUploads(self._container)
        self.abort_upload, self.list_parts = self._uploads.abort, self._uploads.parts
        self.list_uploads = self._uploads.open_uploads
        self._is_flat = False
        self.capabilities = StoreCapabilities(
            trusts_checksum=self._container.trusts_checksum,
            min_part_bytes=1,
            max_part_bytes=_MAX_BLOCK_BYTES,
            max_parts=_MAX_BLOCKS,
            max_object_bytes=_MAX_BLOCKS * _MAX_BLOCK_BYTES,
        )

    @cached_property
    def async_requests(self) -> AsyncRequests | None:
        """See `requests_of`. Without httptools threads send all requests."""
        try:
            from skyplane_gateway.stores.azure.async_requests import AzureAsyncRequests
        except ModuleNotFoundError:
            return None
        if self._container.reads_tags:
            return None  # Each read has a second request.
        return AzureAsyncRequests(self._container)

    def check(self, prefix: str = "") -> None:
        query = {"restype": "container", "comp": "list", "maxresults": "1"}
        if prefix:
            query["prefix"] = prefix
        with mapped(self._container.doing("listing", prefix)):
            body = self._container.send(AzureRequest("GET", "", 200, query=query)).body
            listing.page_of(body, self._container)

    def list(
        self, prefix: str, *, start_after: str | None = None, wants: Wants | None = None
    ) -> Iterator[ObjectInfo]:
        what = self._container.doing("listing", prefix)
        rows = listing.objects(self._container, prefix, start_after, what)
        shown = (row for row in rows if not row.key.startswith(UPLOADS_FOLDER))
        return shown if self._container.uses_md5 else (replace(row, md5=None) for row in shown)

    def head(self, key: str) -> ObjectInfo:
        with mapped(self._container.doing("looking at", check_azure_key(key))):
            answer = self._head(key, None)
            info = self._info(key, answer)
        found = with_tags(attributes_of(answer.headers), info.not_carried, self._tags(key))
        return replace(info, attributes=found[0], not_carried=found[1])

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> Reader:
        what = self._container.doing("reading", check_azure_key(key))
        # Parts of an object need no attributes.
        tags = self._tags(key) if offset == 0 else None
        if length == 0:
            with mapped(what):
                headers = self._head(key, if_match).headers
            require_etag(headers.get("etag"), if_match, what)
            found = with_tags(attributes_of(headers), not_carried_of(headers), tags)
            return EmptyReader(*found)
        wanted = {"x-ms-range": f"bytes={offset}-{offset + length - 1}", **match_headers(if_match)}
        with mapped(what):
            answer = self._container.open(AzureRequest("GET", key, 206, wanted))
        headers = {name.lower(): value for name, value in answer.headers.items()}
        found = with_tags(attributes_of(headers), not_carried_of(headers), tags)
        reader = AzureReader(answer, length, what, *found)
        reader.stated = self._container.stated(headers, length)
        try:
            require_range(answer.status, headers, offset, length, what)
            require_etag(headers.get("etag"), if_match, what)
        except StoreError:
            reader.close()
            raise
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
        what = self._container.doing("writing", self._check_new(key))
        attributes = with_class(attributes, self.spec, key)
        headers = put_headers(data, attributes, precondition, crc32c, what)
        trusted = crc32c if self._container.trusts_checksum else None
        with mapped(what):
            answer = self._container.send(AzureRequest("PUT", key, 201, headers), data)
            return written_info(key, answer.headers, len(data), attributes, trusted)

    def create_upload(self, key: str, attributes: ObjectAttributes | None = None) -> str:
        return self._uploads.create(self._check_new(key), with_class(attributes, self.spec, key))

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        verify(f"part {number} of {key!r}", data, crc32c)
        return self._uploads.put_part(check_azure_key(key), upload_id, number, data, crc32c)

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
        check_azure_key(key)
        found = sum(part.size_bytes for part in parts)
        if found != size_bytes:
            raise StoreError(
                f"the parts of {key!r} have {found} bytes, not the {size_bytes} expected"
            )
        made, leftover = self._uploads.complete(key, upload_id, parts, precondition, crc32c)
        what = self._container.doing("completing", key)
        try:
            with mapped(what):
                info = replace(self._info(key, self._head(key, None)), leftover=leftover)
        except NotFound:
            raise
        except SkyplaneError as error:
            trusted = crc32c if self._container.trusts_checksum else None
            with mapped(what):
                written = written_info(key, made, size_bytes, None, trusted)
            log.warning("%r is written, but cannot be looked at: %s", key, error)
            return replace(written, leftover=leftover)
        return require_made(info, made.get("etag"), size_bytes, what)

    def delete(self, key: str, *, if_match: str | None = None) -> None:
        removal = AzureRequest("DELETE", check_azure_key(key), 202, match_headers(if_match))
        with mapped(self._container.doing("deleting", key)):
            try:
                self._container.send(removal)
            except Refused as error:
                if error.status == 412:
                    self._head(key, None)  # Conditions come first, also for a blob that is gone.
                if error.code != "BlobNotFound":
                    raise

    def close(self) -> None:
        self._container.close()

    def _check_new(self, key: str) -> str:
        """Raise InvalidKey for a key that this account would change."""
        check_azure_key(key)
        has_empty_segment = key.startswith("/") or "//" in key
        if has_empty_segment and not self._is_flat:
            what = self._container.doing("looking for the kind of account of", key)
            if listing.is_hierarchical(self._container, what):
                raise InvalidKey(
                    f"{key!r} has an empty segment, which an account with a hierarchical namespace "
                    "drops; rename the object"
                )
            self._is_flat = True
        return key

    def _head(self, key: str, if_match: str | None) -> AzureResponse:
        """Raises as `Container.send`."""
        answer = self._container.send(AzureRequest("HEAD", key, 200, match_headers(if_match)))
        size_of(answer.headers)
        return answer

    def _tags(self, key: str) -> Tags | None:
        """The tags of a blob; None where they are not asked for. 1 call, or none."""
        if not self._container.reads_tags:
            return None
        what = self._container.doing("reading the tags of", key)
        with mapped(what):
            return tags_of(
                self._container.send(AzureRequest("GET", key, 200, query={"comp": "tags"})).body
            )

    def _info(self, key: str, answer: AzureResponse) -> ObjectInfo:
        info = info_of(key, answer.headers, trusted=self._container.trusts_checksum)
        return info if self._container.uses_md5 else replace(info, md5=None)
