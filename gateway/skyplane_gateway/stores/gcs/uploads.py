"""Multipart uploads, which the JSON API lacks: parts are objects, joined by compose requests.

An upload is a marker, `.skyplane/uploads/<id>.upload`, with the key and the attributes. Its parts
are `.skyplane/uploads/<id>/<number>`. Any process can write them and find them. An upload is open
while it has a marker or a part. `GcsStore.list` shows neither.

The service joins only objects of the class of the whole. So the id ends with the class that the
object is to get, if one was chosen: who writes a part knows no more than the id. Without one, the
default of the bucket is the class of the parts and of the object.

The marker is removed before the parts are listed. A part that is written later finds no marker and
removes itself. So no part stays behind, unless its process dies at that moment; `list_uploads`
finds such a part.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Final
from urllib.parse import quote, unquote

from skyplane_gateway.common.errors import ChecksumMismatch, NotFound, StoreError
from skyplane_gateway.common.objects import (
    UNCONDITIONAL,
    Body,
    ObjectAttributes,
    ObjectInfo,
    PartInfo,
    Precondition,
    UploadInfo,
)
from skyplane_gateway.stores.checksums import Stated, compare, crc32c_of, crc32c_text, stated_crc32c
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.gcs.bucket import GcsBucket, Resource
from skyplane_gateway.stores.gcs.compose import Piece, WantedPiece, grouped, joined, whole_crc32c
from skyplane_gateway.stores.gcs.error_mapping import mapped
from skyplane_gateway.stores.gcs.listing import pages
from skyplane_gateway.stores.gcs.requests import resource_of, unix_s
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER
from skyplane_gateway.stores.response_validation import marked_attributes, read_json, require_made

log = logging.getLogger(__name__)

_ID: Final = re.compile(r"[0-9a-f]{32}(?:-(?P<storage_class>[a-z_]+))?\Z")
_PART: Final = re.compile(r"[0-9]{5}\Z")
_MARKER: Final = ".upload"
#: Metadata of markers, parts and joined parts; the key is percent-encoded.
_KEY: Final = "skyplane-key"
_OFFSET: Final = "skyplane-offset"
_ROW_FIELDS: Final = "kind,name,generation,size,crc32c,timeCreated,metadata,storageClass"
#: Requests to remove temporary objects at once.
_REMOVALS: Final = 16


class GcsUploads:
    """The verbs of `ObjectStore` for multipart uploads."""

    def __init__(self, bucket: GcsBucket) -> None:
        self._bucket = bucket

    def create(self, key: str, attributes: ObjectAttributes | None) -> str:
        attributes = attributes or ObjectAttributes()
        storage_class = attributes.storage_class
        upload_id = uuid.uuid4().hex + (f"-{storage_class.lower()}" if storage_class else "")
        what = self._bucket.doing("beginning an upload of", key)
        document = json.dumps(attributes.to_dict()).encode()
        metadata, crc32c = {_KEY: quote(key)}, crc32c_of(document)
        marker = self._write(
            _marker(upload_id), document, what, crc32c, resource={"metadata": metadata}
        )
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
        resource = _part_resource(key, upload_id, offset, what)
        name = _part(upload_id, number)
        part = self._write(name, data, what, crc32c, resource=resource)
        self._require_open(upload_id, name, part, what)
        return PartInfo(number, part["generation"], len(data), crc32c)

    def copy_part(self, key: str, upload_id: str, number: int, source: CopySource) -> PartInfo:
        what = self._bucket.doing(f"copying part {number} of", key)
        resource = _part_resource(key, upload_id, source.offset, what)
        name = _part(upload_id, number)
        part = self._bucket.copy_from(source, name, what, resource)
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
        try:
            marker = self._bucket.look(_marker(upload_id), what)
            attributes = self._attributes(upload_id, marker, what)
        except NotFound as error:
            raise NotFound(f"{what}: the upload is gone; begin a new one") from error
        named = (
            WantedPiece(_part(upload_id, part.number), part.etag, part.size_bytes, part.crc32c)
            for part in parts
        )
        # What the last compose request joins.
        wanted = grouped(named, f"{UPLOADS_FOLDER}{upload_id}/")
        stored = self._stored(upload_id, what)
        pieces = _require_stored(wanted, stored, len(parts), what)
        _require_whole(pieces, size_bytes, crc32c, what)
        # Without its key, what is left after a kill would be found by no sweep.
        metadata = {_KEY: quote(key)}
        sources = joined(self._bucket, wanted, stored, pieces[0].storage_class, metadata, what)
        found_class = attributes.storage_class or sources[0].storage_class or None
        attributes = replace(attributes, storage_class=found_class)
        made = self._bucket.compose(
            key,
            [(source.name, source.generation) for source in sources],
            what,
            resource=resource_of(attributes),
            precondition=precondition,
        )
        try:
            self.abort(made.key, upload_id)
        except StoreError as error:
            # The object is there: what stays is no failure of it.
            log.warning("%r is written, but parts of its upload stay: %s", made.key, error)
            made = replace(made, leftover=error.message)
        return require_made(made, None, size_bytes, what)

    def abort(self, key: str, upload_id: str) -> None:
        what = self._bucket.doing("removing the parts of", key)
        if not _ID.match(upload_id):
            return
        with suppress(NotFound):
            self._bucket.delete(_marker(upload_id), what)
        with ThreadPoolExecutor(_REMOVALS) as pool:
            gone = pool.map(
                lambda row: self._bucket.remove(row["name"], row["generation"], what),
                self._rows(upload_id, what),
            )
            list(gone)

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
        pieces = self._stored(upload_id, what)
        numbers = {name.rpartition("/")[2]: piece for name, piece in pieces.items()}
        return tuple(
            PartInfo(int(number), piece.generation, piece.size_bytes, piece.crc32c)
            for number, piece in numbers.items()
            if _PART.match(number)
        )

    def _write(
        self, name: str, data: Body, what: str, crc32c: int, *, resource: Resource
    ) -> Resource:
        resource = {"name": name, "crc32c": crc32c_text(crc32c), **resource}
        return self._bucket.insert(
            name, data, what, resource=resource, precondition=UNCONDITIONAL, crc32c=crc32c
        )

    def _attributes(self, upload_id: str, marker: Resource, what: str) -> ObjectAttributes:
        body = self._bucket.small_body(_marker(upload_id), marker["generation"], what)
        with mapped(what):
            found = marked_attributes(read_json(body))
        compare(_marker(upload_id), body, Stated.crc32c(stated_crc32c(marker.get("crc32c"))))
        return found

    def _rows(self, upload_id: str, what: str) -> Iterator[Resource]:
        """All temporary objects of an upload but its marker."""
        folder = f"{UPLOADS_FOLDER}{upload_id}/"
        for page in pages(self._bucket.client, folder, what, _ROW_FIELDS):
            yield from page.get("items", ())

    def _stored(self, upload_id: str, what: str) -> dict[str, Piece]:
        """Name of a part, or of joined parts -> the object, ascending."""
        return {
            row["name"]: Piece(
                row["name"],
                row["generation"],
                int(row["size"]),
                stated_crc32c(row.get("crc32c")),
                row.get("storageClass", ""),
            )
            for row in self._rows(upload_id, what)
        }


def _marker(upload_id: str) -> str:
    return f"{UPLOADS_FOLDER}{upload_id}{_MARKER}"


def _part(upload_id: str, number: int) -> str:
    return f"{UPLOADS_FOLDER}{upload_id}/{number:05}"


def _require_id(upload_id: str, what: str) -> re.Match[str]:
    found = _ID.match(upload_id)
    if found is None:
        raise NotFound(f"{what}: there is no upload {upload_id!r}")
    return found


def _part_resource(key: str, upload_id: str, offset: int, what: str) -> Resource:
    storage_class = _require_id(upload_id, what)["storage_class"]
    described = {"metadata": {_KEY: quote(key), _OFFSET: str(offset)}}
    return {**described, "storageClass": storage_class.upper()} if storage_class else described


def _open_upload(upload_id: str, row: Resource, prefix: str) -> Iterator[UploadInfo]:
    """The upload of a marker or a part; none for objects of other programs."""
    key = unquote(row.get("metadata", {}).get(_KEY, ""))
    if key and _ID.match(upload_id) and key.startswith(prefix):
        yield UploadInfo(key, upload_id, unix_s(row["timeCreated"]))


def _require_stored(
    wanted: Sequence[WantedPiece], stored: Mapping[str, Piece], parts: int, what: str
) -> list[Piece]:
    """The stored pieces, in order. Raises ChecksumMismatch where they cannot be joined."""
    found = [piece for each in wanted for piece in each.found(stored)]
    pieces = [piece for piece in found if piece is not None]
    again = "upload the object again"
    if not pieces or len(pieces) < len(found):
        lost = len(found) - len(pieces)
        raise ChecksumMismatch(f"{what}: the store has lost {lost} of {parts} parts; {again}")
    if len({piece.storage_class for piece in pieces}) > 1:
        # The default of the bucket has changed meanwhile.
        raise ChecksumMismatch(f"{what}: the parts have several storage classes; {again}")
    return pieces


def _require_whole(pieces: Sequence[Piece], size_bytes: int, crc32c: int | None, what: str) -> None:
    found_bytes = sum(piece.size_bytes for piece in pieces)
    found = whole_crc32c((piece.crc32c, piece.size_bytes) for piece in pieces)
    if found_bytes != size_bytes:
        raise StoreError(f"{what}: the parts have {found_bytes} bytes, not {size_bytes}")
    if found is not None and crc32c is not None and found != crc32c:
        raise ChecksumMismatch(
            f"{what}: the parts have CRC32C {found:08x}, not {crc32c:08x}; upload the object again"
        )
