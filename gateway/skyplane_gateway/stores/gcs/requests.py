"""Converts this project's values to requests of Google Cloud Storage, and answers back.

Metadata and writes use the JSON API. Bodies are read through the XML API, whose answer also holds
the user metadata; that of the JSON API does not.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from skyplane_gateway.common.encoded_words import utf8
from skyplane_gateway.common.mtime import dated, undated
from skyplane_gateway.common.objects import Body, ObjectAttributes, ObjectInfo, Precondition
from skyplane_gateway.common.source_version import recorded_source
from skyplane_gateway.stores.body_blocks import Blocks
from skyplane_gateway.stores.checksums import (
    Stated,
    crc32c_text,
    hex_of,
    range_of_whole,
    stated_crc32c,
)
from skyplane_gateway.stores.response_validation import NoAnswer, is_number, require, unavailable

GOOGLE_URL: Final = "https://storage.googleapis.com"

#: Attribute -> field of an object's resource in the JSON API.
_FIELDS: Final = {
    "content_type": "contentType",
    "content_encoding": "contentEncoding",
    "content_language": "contentLanguage",
    "content_disposition": "contentDisposition",
    "cache_control": "cacheControl",
}
#: Attribute -> header of the XML API.
_HEADERS: Final = {
    "content_type": "Content-Type",
    "content_encoding": "X-Goog-Stored-Content-Encoding",
    "content_language": "Content-Language",
    "content_disposition": "Content-Disposition",
    "cache_control": "Cache-Control",
}
_METADATA: Final = "x-goog-meta-"
#: Sent with objects that have no cache control, to anyone and to those with a token.
_DEFAULT_CACHE_CONTROL: Final = ("public, max-age=3600", "private, max-age=0")
#: Storage classes that cost and behave as an object without a class does.
_STANDARD: Final = ("STANDARD", "MULTI_REGIONAL", "REGIONAL")
#: What a copy does not have -> the fields that tell.
_NOT_CARRIED: Final = {
    "custom-time": ("customTime",),
    "hold": ("temporaryHold", "eventBasedHold"),
    "retention": ("retention",),
    "contexts": ("contexts",),
}

#: The fields that a listing shows of an object.
ROW_FIELDS: Final = (
    "kind,name,generation,size,updated,crc32c,md5Hash,storageClass,metadata,"
    "customTime,temporaryHold,eventBasedHold,retention,contexts"
)
#: The fields of an answer about one object.
OBJECT_FIELDS: Final = (
    f"{ROW_FIELDS},contentType,contentEncoding,contentLanguage,contentDisposition,cacheControl,"
    "timeCreated,retentionExpirationTime"
)

_NO_ATTRIBUTES: Final = ObjectAttributes()


class Urls:
    """The addresses of one bucket.

    Keys are encoded as one segment, since HTTP clients change paths with `..` and `//`.
    """

    def __init__(self, endpoint_url: str | None, bucket: str, user_project: str) -> None:
        self.base = (endpoint_url or GOOGLE_URL).rstrip("/")
        self._bucket = quote(bucket, safe="")
        self._common = {"userProject": user_project} if user_project else {}

    def bucket(self, **query: str) -> str:
        return self._with(f"/storage/v1/b/{self._bucket}", query)

    def objects(self, **query: str) -> str:
        return self._with(f"/storage/v1/b/{self._bucket}/o", query)

    def object(self, key: str, **query: str) -> str:
        return self._with(f"/storage/v1/b/{self._bucket}/o/{quote(key, safe='')}", query)

    def upload(self, key: str, **query: str) -> str:
        query = {"uploadType": "multipart", "name": key, **query}
        return self._with(f"/upload/storage/v1/b/{self._bucket}/o", query)

    def compose(self, key: str, **query: str) -> str:
        path = f"/storage/v1/b/{self._bucket}/o/{quote(key, safe='')}/compose"
        return self._with(path, query)

    def rewrite(self, key: str, into: Urls, name: str, **query: str) -> str:
        """For a copy of the object to a name in another bucket."""
        there = f"/rewriteTo/b/{into._bucket}/o/{quote(name, safe='')}"
        return self._with(f"/storage/v1/b/{self._bucket}/o/{quote(key, safe='')}{there}", query)

    def beside(self, bucket: str) -> Urls:
        """The addresses of another bucket, for requests with the same credentials."""
        return Urls(self.base, bucket, "")

    def body(self, key: str) -> str:
        """For the XML API."""
        return self._with(f"/{self._bucket}/{quote(key, safe='')}", {})

    def _with(self, path: str, query: Mapping[str, str]) -> str:
        query = {**self._common, **query}
        return f"{self.base}{path}{'?' if query else ''}{urlencode(query)}"


class MultipartRelatedBody:
    """A body of an object's resource and its bytes (RFC 2387), sent block by block.

    The bytes are not copied.
    """

    def __init__(self, resource: Mapping[str, Any], data: Body) -> None:
        boundary = uuid.uuid4().hex
        self.content_type = f"multipart/related; boundary={boundary}"
        self._head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
            f"{json.dumps(resource)}\r\n--{boundary}\r\n"
            f"Content-Type: {_header(resource.get('contentType'))}\r\n\r\n"
        ).encode()
        self._data = Blocks(data)
        self._tail = f"\r\n--{boundary}--".encode()

    def __len__(self) -> int:
        return len(self._head) + len(self._data) + len(self._tail)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._head
        yield from self._data
        yield self._tail


def resource_of(attributes: ObjectAttributes | None, crc32c: int | None = None) -> dict[str, Any]:
    """The resource of an object to be written."""
    found: dict[str, Any] = {}
    if attributes is not None:
        values = {header: getattr(attributes, attribute) for attribute, header in _FIELDS.items()}
        found = {name: value for name, value in values.items() if value is not None}
        if attributes.metadata:
            found["metadata"] = dated(attributes.metadata)
        if attributes.storage_class is not None:
            found["storageClass"] = attributes.storage_class
    if crc32c is not None:
        found["crc32c"] = crc32c_text(crc32c)
    return found


def precondition_query(precondition: Precondition) -> dict[str, str]:
    """Generation 0 stands for no object."""
    if precondition.if_absent:
        return {"ifGenerationMatch": "0"}
    return {"ifGenerationMatch": precondition.if_match} if precondition.if_match is not None else {}


def info_of(key: str, resource: Mapping[str, Any], *, with_attributes: bool = True) -> ObjectInfo:
    """The object that a resource shows, with its attributes or what they tell of its source.

    Raises StoreUnavailable where it shows none.
    """
    try:
        require_object(key, resource)
        size_bytes = int(resource["size"])
        # A listing has a million rows, most of them without metadata.
        is_told = with_attributes or "metadata" in resource
        attributes = attributes_of_resource(resource) if is_told else _NO_ATTRIBUTES
        return ObjectInfo(
            key=key,
            size_bytes=size_bytes,
            etag=resource["generation"],
            last_modified=unix_s(resource["updated"]),
            crc32c=stated_crc32c(resource.get("crc32c")),
            md5=hex_of(resource.get("md5Hash"), 16),
            attributes=attributes if with_attributes else None,
            made_of=None if with_attributes else recorded_source(attributes),
            is_folder=size_bytes == 0 and not with_attributes and attributes.marks_folder,
            not_carried=not_carried_of_resource(resource),
            storage_class=_class_of(resource.get("storageClass")),
        )
    except (NoAnswer, LookupError, TypeError, ValueError, AttributeError) as error:
        raise unavailable(f"looking at {key!r}", f"describes no object ({error})") from error


def require_object(key: str, resource: Any) -> None:
    """Raise NoAnswer where a resource is not that of the object: another name, no version."""
    if not isinstance(resource, dict) or resource.get("name") != key:
        raise NoAnswer(f"is not about {key!r}")
    for name in ("size", "generation"):
        require(resource, name)
        if not is_number(resource[name]):
            raise NoAnswer(f"has a {name} that is no number")
    try:
        for name in ("updated", "timeCreated"):
            if name in resource:
                unix_s(resource[name])
        hex_of(resource.get("crc32c"), 4), hex_of(resource.get("md5Hash"), 16)
        attributes_of_resource(resource)
    except (TypeError, ValueError, AttributeError) as error:
        raise NoAnswer("has a value of another type") from error


def attributes_of_resource(resource: Mapping[str, Any]) -> ObjectAttributes:
    headers: dict[str, Any] = {
        attribute: resource.get(header) or None for attribute, header in _FIELDS.items()
    }
    metadata = {name.lower(): text for name, text in resource.get("metadata", {}).items()}
    if not all(isinstance(text, str | None) for text in (*headers.values(), *metadata.values())):
        raise TypeError
    return ObjectAttributes(**headers, metadata=undated(metadata.items()))


def not_carried_of_resource(resource: Mapping[str, Any]) -> tuple[str, ...]:
    """Metadata that a copy will not have; see `ObjectInfo.not_carried`."""
    named = [name for name, fields in _NOT_CARRIED.items() if any(map(resource.get, fields))]
    return (*_class_name(resource.get("storageClass")), *named)


def read_headers(offset: int, length: int, if_match: str | None) -> dict[str, str]:
    """The headers of a ranged read of one version, as the bytes are stored."""
    # Without this header the service decompresses gzip, and ignores the range.
    headers = {"Accept-Encoding": "gzip", "Range": f"bytes={offset}-{offset + length - 1}"}
    if if_match is not None:
        headers["x-goog-if-generation-match"] = if_match
    return headers


def attributes_of_headers(headers: Mapping[str, str]) -> ObjectAttributes:
    """From an answer of the XML API.

    The service sends a cache control for objects that have none; it counts as none.
    """
    found: dict[str, Any] = {
        attribute: utf8(headers.get(header, "")) or None for attribute, header in _HEADERS.items()
    }
    if found["content_encoding"] == "identity":
        found["content_encoding"] = None
    if found["cache_control"] in _DEFAULT_CACHE_CONTROL:
        found["cache_control"] = None
    metadata = {
        name.lower()[len(_METADATA) :]: utf8(text)
        for name, text in headers.items()
        if name.lower().startswith(_METADATA)
    }
    return ObjectAttributes(**found, metadata=undated(metadata.items()))


def not_carried_of_headers(headers: Mapping[str, str]) -> tuple[str, ...]:
    """As `not_carried_of_resource`; the rest is in the listing's row."""
    custom_time = ("custom-time",) if headers.get("x-goog-custom-time") else ()
    return (*_class_name(headers.get("x-goog-storage-class")), *custom_time)


def stated_in(headers: Mapping[str, str], length: int) -> Stated | None:
    """The CRC32C in an answer of the XML API, if that is a whole object of so many bytes."""
    if headers.get("Content-Range") != range_of_whole(length):
        return None
    parts = headers.get("x-goog-hash", "").split(",")
    names = dict(part.strip().partition("=")[::2] for part in parts)
    return Stated.crc32c(stated_crc32c(names.get("crc32c")))


def unix_s(text: str) -> float:
    """Unix seconds of a time of RFC 3339."""
    return datetime.fromisoformat(text).timestamp()


def _class_of(name: str | None) -> str | None:
    """The class; None for the usual one."""
    return None if (name or _STANDARD[0]) in _STANDARD else name


def _class_name(storage_class: str | None) -> tuple[str, ...]:
    return () if _class_of(storage_class) is None else ("storage-class",)


def _header(content_type: str | None) -> str:
    """The type of the part with the bytes; the service takes that of the resource."""
    if content_type and content_type.isascii() and content_type.isprintable():
        return content_type
    return "application/octet-stream"
