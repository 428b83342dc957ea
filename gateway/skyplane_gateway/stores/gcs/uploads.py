"""Multipart uploads, which the JSON API lacks: parts are objects, joined by compose requests.

An upload is a marker, `.skyplane/uploads/<id>.upload`, with the key and the attributes. Its parts
are `.skyplane/uploads/<id>/<number>`. Any process can write them and find them. An upload is open
while it has a marker or a part. `GcsStore.list` shows neither.

The marker is removed before the parts are listed. A part that is written later finds no marker and
removes itself. So no part stays behind, unless its process dies at that moment; `list_uploads`
finds such a part.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import quote, unquote

from skyplane_gateway.errors import (
    ChecksumMismatch,
    NotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
)
from skyplane_gateway.objects import (
    UNCONDITIONAL,
    Body,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    UploadInfo,
)
from skyplane_gateway.stores.answers import marked_attributes, read_json, require_made
from skyplane_gateway.stores.checksums import (
    Stated,
    compare,
    crc32c_of,
    crc32c_text,
    stated_crc32c,
)
from skyplane_gateway.stores.gcs.bucket import Bucket, Resource
from skyplane_gateway.stores.gcs.compose import Piece, compose, whole_crc32c
from skyplane_gateway.stores.gcs.errors import mapped
from skyplane_gateway.stores.gcs.listing import pages
from skyplane_gateway.stores.gcs.requests import unix_s
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER
from skyplane_gateway.stores.server_side import CopySource

log = logging.getLogger(__name__)

_ID: Final = re.compile(r"[0-9a-f]{32}\Z")
_PART: Final = re.compile(r"[0-9]{5}\Z")
_MARKER: Final = ".upload"
#: Metadata of markers and parts; the key is percent-encoded.
_KEY: Final = "skyplane-key"
_OFFSET: Final = "skyplane-offset"
_ROW_FIELDS: Final = "kind,name,generation,size,crc32c,timeCreated,metadata"
#: Requests to remove temporary objects at once.
_REMOVALS: Final = 16


class Uploads:
    """The verbs of `ObjectStore` for multipart uploads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def create(self, key: str, attributes: ObjectAttributes | None) -> str:
        upload_id = uuid.uuid4().hex
        what = self._bucket.doing("beginning an upload of", key)
        document = json.dumps((attributes or ObjectAttributes()).to_dict()).encode()
        metadata, crc32c = {_KEY: quote(key)}, crc32c_of(document)
        marker = self._write(_marker(upload_id), document, what, metadata, crc32c)
        if marker.get("retentionExpirationTime") or marker.get("eventBasedHold"):
            raise StoreError(
                f"{what}: the bucket keeps every object for a time (retention policy or default "
                "hold), so temporary parts could not be removed; write to a bucket without one, "
                f"or with parts as large as the object. {_marker(upload_id)} stays until then",
                is_permanent=True,
            )
        return upload_id

    def put_part(
        self, key: str, upload_id: str, number: int, data: Body, *, offset: int, crc32c: int
    ) -> PartInfo:
        what = self._bucket.doing(f"writing part {number} of", key)
        _require_id(upload_id, what)
        metadata = {_KEY: quote(key), _OFFSET: str(offset)}
        name = _part(upload_id, number)
        part = self._write(name, data, what, metadata, crc32c)
        self._require_open(upload_id, name, part, what)
        return PartInfo(number, part["generation"], len(data), crc32c)

    def copy_part(self, key: str, upload_id: str, number: int, source: CopySource) -> PartInfo:
        what = self._bucket.doing(f"copying part {number} of", key)
        _require_id(upload_id, what)
        name = _part(upload_id, number)
        metadata = {_KEY: quote(key), _OFFSET: str(source.offset)}
        part = self._bucket.copy_from(source, name, what, metadata)
        self._require_open(upload_id, name, part, what)
        return PartInfo(
            number, part["generation"], int(part["size"]), stated_crc32c(part.get("crc32c"))
        )

    def _require_open(self, upload_id: str, name: str, part: Resource, what: str) -> None:
        """Remove a part that was written after the end of its upload, and raise NotFound."""
        try:
            self._bucket.look(_marker(upload_id), what)
        except NotFound as error:
            self._bucket.remove(name, part["generation"], what)
            raise NotFound(f"{what}: the upload was completed or aborted") from error

    def complete(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[PartInfo],
        *,
        precondition: Precondition = UNCONDITIONAL,
        size_bytes: int,
        crc32c: int | None = None,
    ) -> ObjectInfo:
        what = self._bucket.doing("completing", key)
        _require_id(upload_id, what)
        if crc32c is None:
            crc32c = whole_crc32c((part.crc32c, part.size_bytes) for part in parts)
        find_written = partial(self._bucket.find_written, key, size_bytes, crc32c)
        try:
            marker = self._bucket.look(_marker(upload_id), what)
            attributes = self._attributes(upload_id, marker, what)
        except NotFound as error:
            written = find_written(None)
            if written is None:
                raise NotFound(f"{what}: the upload is gone; begin a new one") from error
            return self._tidied(written, upload_id)
        try:
            pieces = self._pieces(upload_id, parts, what)
            _require_whole(pieces, size_bytes, crc32c, what)
            made = self._composed(key, upload_id, pieces, attributes, precondition, what)
        except (PreconditionFailed, NotFound, ChecksumMismatch, StoreUnavailable):
            # An attempt whose answer was lost may have made the object from the same parts.
            earlier = find_written(attributes, unix_s(marker["timeCreated"]))
            if earlier is None:
                raise
            made = earlier
        return require_made(self._tidied(made, upload_id), None, size_bytes, what)

    def _tidied(self, made: ObjectInfo, upload_id: str) -> ObjectInfo:
        """Remove the upload of an object that is there: what stays is no failure of the object."""
        try:
            self.abort(made.key, upload_id)
        except StoreError as error:
            log.warning("%r is written, but parts of its upload stay: %s", made.key, error)
            return replace(made, leftover=error.message)
        return made

    def abort(self, key: str, upload_id: str) -> None:
        what = self._bucket.doing("removing the parts of", key)
        if not _ID.match(upload_id):
            return
        with suppress(NotFound):
            self._bucket.delete(_marker(upload_id), what)
        self._remove_parts(upload_id, what)

    def open_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        what = self._bucket.doing("listing the open uploads of", prefix)
        client, markers = self._bucket.client, set[str]()
        for page in pages(client, UPLOADS_FOLDER, what, _ROW_FIELDS, delimiter="/"):
            for row in page.get("items", ()):
                upload_id = row["name"].removeprefix(UPLOADS_FOLDER).removesuffix(_MARKER)
                markers.add(upload_id)
                yield from _open_upload(upload_id, row, prefix)
            for folder in page.get("prefixes", ()):
                upload_id = folder.removeprefix(UPLOADS_FOLDER).rstrip("/")
                if upload_id not in markers:
                    rows = self._rows(upload_id, what)
                    yield from _open_upload(upload_id, next(rows, {}), prefix)

    def parts(self, key: str, upload_id: str) -> tuple[PartInfo, ...]:
        what = self._bucket.doing("listing the parts of", key)
        _require_id(upload_id, what)
        self._bucket.look(_marker(upload_id), what)
        return tuple(
            PartInfo(number, piece.generation, piece.size_bytes, piece.crc32c)
            for number, piece in self._stored(upload_id, what).items()
        )

    def _write(
        self, name: str, data: Body, what: str, metadata: dict[str, str], crc32c: int
    ) -> Resource:
        resource = {"name": name, "metadata": metadata, "crc32c": crc32c_text(crc32c)}
        return self._bucket.insert(
            name, data, what, resource=resource, precondition=UNCONDITIONAL, crc32c=crc32c
        )

    def _attributes(self, upload_id: str, marker: Resource, what: str) -> ObjectAttributes:
        client = self._bucket.client
        url = client.urls.object(_marker(upload_id), alt="media", generation=marker["generation"])
        body = client.send("GET", url, what).content
        with mapped(what):
            found = marked_attributes(read_json(body))
        compare(_marker(upload_id), body, Stated.crc32c(stated_crc32c(marker.get("crc32c"))))
        return found

    def _rows(self, upload_id: str, what: str) -> Iterator[Resource]:
        """All temporary objects of an upload but its marker."""
        folder = f"{UPLOADS_FOLDER}{upload_id}/"
        for page in pages(self._bucket.client, folder, what, _ROW_FIELDS):
            yield from page.get("items", ())

    def _stored(self, upload_id: str, what: str) -> dict[int, Piece]:
        """Number of a part -> the part, ascending."""
        found = {}
        for row in self._rows(upload_id, what):
            _, _, number = row["name"].rpartition("/")
            if _PART.match(number):
                found[int(number)] = Piece(
                    row["name"],
                    row["generation"],
                    int(row["size"]),
                    stated_crc32c(row.get("crc32c")),
                )
        return found

    def _pieces(self, upload_id: str, parts: Sequence[PartInfo], what: str) -> list[Piece]:
        """The stored parts, in order. Raises ChecksumMismatch where one is another one now."""
        stored = self._stored(upload_id, what)
        pieces = [stored.get(part.number) for part in parts]
        found = [
            piece
            for piece, part in zip(pieces, parts, strict=True)
            if piece is not None and piece.generation == part.etag
        ]
        if not found or len(found) < len(parts):
            raise ChecksumMismatch(
                f"{what}: the store has lost {len(parts) - len(found)} of {len(parts)} parts; "
                "upload the object again"
            )
        return found

    def _composed(
        self,
        key: str,
        upload_id: str,
        pieces: list[Piece],
        attributes: ObjectAttributes,
        precondition: Precondition,
        what: str,
    ) -> ObjectInfo:
        folder = f"{UPLOADS_FOLDER}{upload_id}/"
        joined = compose(self._bucket, folder, pieces, what)
        return self._bucket.compose(
            key,
            [(piece.name, piece.generation) for piece in joined],
            what,
            attributes=attributes,
            precondition=precondition,
            removes_sources=True,
        )

    def _remove_parts(self, upload_id: str, what: str) -> None:
        with ThreadPoolExecutor(_REMOVALS) as pool:
            gone = pool.map(
                lambda row: self._bucket.remove(row["name"], row["generation"], what),
                self._rows(upload_id, what),
            )
            list(gone)


def _marker(upload_id: str) -> str:
    return f"{UPLOADS_FOLDER}{upload_id}{_MARKER}"


def _part(upload_id: str, number: int) -> str:
    return f"{UPLOADS_FOLDER}{upload_id}/{number:05}"


def _require_id(upload_id: str, what: str) -> None:
    if not _ID.match(upload_id):
        raise NotFound(f"{what}: there is no upload {upload_id!r}")


def _open_upload(upload_id: str, row: Resource, prefix: str) -> Iterator[UploadInfo]:
    """The upload of a marker or a part; none for objects of other programs."""
    key = unquote(row.get("metadata", {}).get(_KEY, ""))
    if key and _ID.match(upload_id) and key.startswith(prefix):
        yield UploadInfo(key, upload_id, unix_s(row["timeCreated"]))


def _require_whole(pieces: Sequence[Piece], size_bytes: int, crc32c: int | None, what: str) -> None:
    found_bytes = sum(piece.size_bytes for piece in pieces)
    found = whole_crc32c((piece.crc32c, piece.size_bytes) for piece in pieces)
    if found_bytes != size_bytes:
        raise StoreError(f"{what}: the parts have {found_bytes} bytes, not {size_bytes}")
    if found is not None and crc32c is not None and found != crc32c:
        raise ChecksumMismatch(
            f"{what}: the parts have CRC32C {found:08x}, not {crc32c:08x}; upload the object again"
        )
