"""One bucket of Google Cloud Storage: the requests that several verbs share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

from skyplane_gateway.common.errors import ChecksumMismatch, NotFound, PreconditionFailed
from skyplane_gateway.common.objects import UNCONDITIONAL, Body, ObjectInfo, Precondition
from skyplane_gateway.stores import response_validation
from skyplane_gateway.stores.checksums import verify
from skyplane_gateway.stores.copy_source import CopySource
from skyplane_gateway.stores.gcs.client import ONCE, GcsClient
from skyplane_gateway.stores.gcs.error_mapping import mapped
from skyplane_gateway.stores.gcs.requests import (
    OBJECT_FIELDS,
    MultipartRelatedBody,
    info_of,
    precondition_query,
    require_object,
)
from skyplane_gateway.stores.response_validation import NoAnswer, require, unavailable

#: An object as the JSON API describes it.
Resource = Mapping[str, Any]

_REWRITE_FIELDS: Final = "kind,done,rewriteToken,resource(name,generation,size,crc32c)"
_OBJECT: Final = "storage#object"
_JSON: Final = {"Content-Type": "application/json"}


class _Bounded(BytesIO):
    """Takes no more than an answer may have; raises NoAnswer."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > response_validation.MAX_BODY_BYTES:
            raise NoAnswer("is too long")
        return super().write(data)


class GcsBucket:
    """Requests about objects; each is sent once and raises StoreError."""

    def __init__(self, client: GcsClient) -> None:
        self.client = client
        self.doing = client.doing

    def look(self, key: str, what: str) -> Resource:
        url = self.client.urls.object(key, fields=OBJECT_FIELDS)
        return self._about(key, self.client.send_for_json("GET", url, what, _OBJECT), what)

    def insert(
        self,
        key: str,
        data: Body,
        what: str,
        *,
        resource: Resource,
        precondition: Precondition,
        crc32c: int | None,
    ) -> Resource:
        """Write an object. The service compares its checksum with that of the resource.

        Raises:
            ChecksumMismatch: the bytes do not have that checksum.
        """
        related = MultipartRelatedBody(resource, data)
        query = {"fields": OBJECT_FIELDS, **precondition_query(precondition)}
        try:
            made = self.client.send_for_json(
                "POST",
                self.client.urls.upload(key, **query),
                what,
                _OBJECT,
                headers={"Content-Type": related.content_type},
                data=related,
                has_checksum=crc32c is not None,
            )
        except ChecksumMismatch:
            if crc32c is not None:
                verify(what, data, crc32c)  # Else they must be read again, not only sent.
            raise
        if self._about(key, made, what)["size"] != str(len(data)):
            raise unavailable(what, f"says {made['size']} bytes, not {len(data)}")
        return made

    @staticmethod
    def _about(key: str, found: Resource, what: str) -> Resource:
        """The resource of that object. Raises StoreUnavailable for another one."""
        with mapped(what):
            require_object(key, found)
            require(found, "updated", "timeCreated")
        return found

    def compose(
        self,
        key: str,
        sources: Sequence[tuple[str, str]],
        what: str,
        *,
        resource: Resource,
        precondition: Precondition = UNCONDITIONAL,
    ) -> ObjectInfo:
        """Join up to 32 objects, each a name with its generation, to one, and delete them.

        The same request deletes them: without a fee for early deletion, without soft delete, also
        in a bucket that keeps versions (Google, "Compose objects", 2026-11). Emulators do not
        delete.

        Args:
            resource: of the new object, with the class of its sources.

        Raises:
            NotFound: a source is gone.
        """
        rows = [{"name": name, "generation": generation} for name, generation in sources]
        body = {"sourceObjects": rows, "destination": resource, "deleteSourceObjects": True}
        query = {"fields": OBJECT_FIELDS, **precondition_query(precondition)}
        made = self.client.send_for_json(
            "POST",
            self.client.urls.compose(key, **query),
            what,
            _OBJECT,
            headers=_JSON,
            data=json.dumps(body),
        )
        return info_of(key, self._about(key, made, what))

    def small_body(self, name: str, generation: str, what: str) -> bytes:
        """The body of a small object of this project itself, read by Google's own client.

        Raises NotFound.
        """
        body = _Bounded()
        with self.client.sdk(what) as bucket:
            blob = bucket.blob(name, generation=int(generation))
            blob.download_to_file(body, raw_download=True, checksum=None, **ONCE)
        return body.getvalue()

    def copy_from(self, source: CopySource, name: str, what: str, resource: Resource) -> Resource:
        """Have the service copy one version of an object; the copy has this metadata only.

        One call, or several where bytes move: to another class, or for large objects.

        Raises:
            PreconditionFailed: the source is another version now.
            NotFound: the source is gone.
        """
        urls = self.client.urls.beside(source.store.bucket)
        body = json.dumps({"contentType": "application/octet-stream", **resource})
        query = {"sourceGeneration": source.etag, "fields": _REWRITE_FIELDS}
        while True:
            url = urls.rewrite(source.key, self.client.urls, name, **query)
            try:
                answer = self.client.send_for_json(
                    "POST", url, what, "storage#rewriteResponse", headers=_JSON, data=body
                )
            except NotFound as error:
                # So the service says that a version is gone.
                self.client.send("GET", urls.object(source.key, fields="generation"), what)
                raise PreconditionFailed(
                    f"{what}: the source is no longer generation {source.etag}; list it again"
                ) from error
            made: Resource = answer.get("resource", {})
            with mapped(what):
                if answer.get("done") is True:
                    require_object(name, made)
                    return made
                require(answer, "rewriteToken")
            query["rewriteToken"] = answer["rewriteToken"]

    def delete(
        self, key: str, what: str, *, generation: str | None = None, if_match: str | None = None
    ) -> None:
        """Delete the newest version, or an older one by its generation. Raises NotFound."""
        query = {"generation": generation, "ifGenerationMatch": if_match}
        url = self.client.urls.object(key, **{name: text for name, text in query.items() if text})
        answer = self.client.send("DELETE", url, what, expected=(200, 204))
        # fake-gcs-server answers 200 with `null`.
        if answer.content.strip() != (b"" if answer.status_code == 204 else b"null"):
            raise unavailable(what, "does not fit a deletion")

    def remove(self, key: str, generation: str, what: str) -> None:
        """Delete a temporary object if it is there; also from a bucket that keeps versions."""
        try:
            self.delete(key, what, generation=generation)
        except NotFound:
            return
