"""Multipart uploads: staged blocks, and a marker blob for each open upload.

Azure knows no uploads: blocks are staged for a name, and a block list makes a blob of them. So
`.skyplane/uploads/` of the container holds a small blob for each open upload, with the attributes
of the object. Without it the upload is over. Staged blocks of an upload that is over cannot be
removed: the service discards them after a week, or when the name is written.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from skyplane_gateway.common.errors import ChecksumMismatch, NotFound, SkyplaneError
from skyplane_gateway.common.objects import (
    Body,
    ObjectAttributes,
    PartInfo,
    Precondition,
    UploadInfo,
)
from skyplane_gateway.stores.azure import listing
from skyplane_gateway.stores.azure.block_lists import (
    BlockId,
    parts_of,
    read_block_list,
    write_block_list,
)
from skyplane_gateway.stores.azure.client import AzureRequest, Container
from skyplane_gateway.stores.azure.error_mapping import Refused, mapped
from skyplane_gateway.stores.azure.requests import (
    attribute_headers,
    crc64_header,
    md5_of,
    precondition_headers,
)
from skyplane_gateway.stores.checksums import Stated, compare
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER
from skyplane_gateway.stores.response_validation import marked_attributes, read_json, require

log = logging.getLogger(__name__)

#: A longer key is cut in the marker's name; the marker holds it whole.
_NAME_CHARS: Final = 200
_UPLOAD_ID: Final = re.compile(r"[0-9a-f]{32}")


class AzureUploads:
    """The open uploads of one container."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def create(self, key: str, attributes: ObjectAttributes | None) -> str:
        """Write a marker; return the id of the upload."""
        upload_id = secrets.token_hex(16)
        what = self._container.doing("beginning an upload of", key)
        attributes = attributes or ObjectAttributes()
        body = json.dumps({"key": key, "attributes": attributes.to_dict()}).encode()
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-blob-content-type": "application/json"}
        with mapped(what):
            marker = AzureRequest(
                "PUT", _marker(key, upload_id), 201, {**headers, **crc64_header(body)}
            )
            self._container.send(marker, body)
        return upload_id

    def put_part(self, key: str, upload_id: str, number: int, data: Body, crc32c: int) -> PartInfo:
        """Stage a block. Whether the upload is over is not looked up."""
        if _UPLOAD_ID.fullmatch(upload_id) is None:
            raise self._gone(key, upload_id)
        block = BlockId(upload_id, number, crc32c, int(time.time() * 1000)).text
        staging = AzureRequest(
            "PUT", key, 201, crc64_header(data), {"comp": "block", "blockid": block}
        )
        with mapped(self._container.doing(f"writing part {number} of", key)):
            self._container.send(staging, data)
        return PartInfo(number, block, len(data), crc32c)

    def parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        """The staged parts. Raises NotFound for an upload that is over."""
        self._attributes(key, upload_id)
        query = {"comp": "blocklist", "blocklisttype": "uncommitted"}
        with mapped(self._container.doing("listing the parts of", key)):
            try:
                body = self._container.send(AzureRequest("GET", key, 200, query=query)).body
            except Refused as error:
                # A blob that was written whole, by another program, may be of another type.
                if error.status in (404, 409):
                    return ()
                raise
            return parts_of(upload_id, read_block_list(body))

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[PartInfo],
        precondition: Precondition,
        crc32c: int | None,
    ) -> tuple[Mapping[str, str], str]:
        """Make a blob of the parts.

        Returns headers of an answer with its version, and why its marker stays (empty: it is gone).
        """
        what = self._container.doing("completing", key)
        ids = [part.etag for part in parts]
        attributes = self._attributes(key, upload_id)
        for part in parts:
            staged = BlockId.parse(part.etag)
            if staged is None or (staged.upload_id, staged.number) != (upload_id, part.number):
                raise ChecksumMismatch(
                    f"{what}: part {part.number} is not stored as {part.etag}; upload the object "
                    "again"
                )
        headers = {**attribute_headers(attributes, crc32c), **precondition_headers(precondition)}
        body = write_block_list(ids)
        commit = AzureRequest(
            "PUT", key, 201, {**headers, **crc64_header(body)}, {"comp": "blocklist"}
        )
        try:
            with mapped(what):
                answer = self._container.send(commit, body).headers
                require(answer, "etag")
        except ChecksumMismatch as error:
            if self.parts(key, upload_id):
                raise
            # A write of the same name dropped all blocks of this upload.
            raise self._gone(key, upload_id) from error
        return answer, self._remove_marker(key, upload_id)

    def abort(self, key: str, upload_id: str) -> None:
        """Delete the marker. The staged blocks stay until the service discards them."""
        if _UPLOAD_ID.fullmatch(upload_id) is None:
            return
        with mapped(self._container.doing("aborting an upload of", key)):
            try:
                self._container.send(AzureRequest("DELETE", _marker(key, upload_id), 202))
            except Refused as error:
                if error.status != 404:
                    raise

    def open_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        """Those of keys that start with `prefix`."""
        what = self._container.doing("listing the open uploads of", prefix)
        below = UPLOADS_FOLDER + quote(prefix, safe="")[:_NAME_CHARS]
        for row in listing.objects(self._container, below, None, what):
            name, _, upload_id = row.key.removeprefix(UPLOADS_FOLDER).rpartition(".")
            if _UPLOAD_ID.fullmatch(upload_id) is None:
                continue
            key = unquote(name)
            if len(name) == _NAME_CHARS:
                try:
                    key = self._read_marker(row.key, what)["key"]
                except NotFound:
                    continue
            if key.startswith(prefix):
                yield UploadInfo(key, upload_id, row.last_modified)

    def _attributes(self, key: str, upload_id: str) -> ObjectAttributes:
        if _UPLOAD_ID.fullmatch(upload_id) is None:
            raise self._gone(key, upload_id)
        what = self._container.doing("looking for the upload of", key)
        try:
            found = self._read_marker(_marker(key, upload_id), what)
        except NotFound as error:
            raise self._gone(key, upload_id) from error
        return marked_attributes(found["attributes"])

    def _read_marker(self, name: str, what: str) -> dict[str, Any]:
        with mapped(what):
            answer = self._container.send(AzureRequest("GET", name, 200))
            found = read_json(answer.body)
            require(found, "key")
            marked_attributes(found.get("attributes"))
            compare(name, answer.body, Stated.md5(md5_of(answer.headers)))
        return found

    def _remove_marker(self, key: str, upload_id: str) -> str:
        """The object is there, so a marker that stays is no failure; why it stays."""
        try:
            self.abort(key, upload_id)
        except SkyplaneError as error:
            log.warning("%r is written, but the marker of its upload stays: %s", key, error)
            return error.message
        return ""

    def _gone(self, key: str, upload_id: str) -> NotFound:
        return NotFound(
            f"{self._container.doing('looking for the upload of', key)}: there is no open upload "
            f"{upload_id}; begin a new one"
        )


def _marker(key: str, upload_id: str) -> str:
    """The name of a marker. No folders: some accounts would keep them as directories."""
    return f"{UPLOADS_FOLDER}{quote(key, safe='')[:_NAME_CHARS]}.{upload_id}"
