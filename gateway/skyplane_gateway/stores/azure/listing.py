"""Paged listings of a container, checked to be complete and in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import Final
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.source_version import recorded_source
from skyplane_gateway.stores.azure.client import AzureRequest, Container
from skyplane_gateway.stores.azure.error_mapping import Refused, mapped
from skyplane_gateway.stores.azure.requests import (
    METADATA,
    attributes_of,
    md5_of,
    modified_at,
    not_carried_of,
    size_of,
    tier_of,
)
from skyplane_gateway.stores.response_validation import NoAnswer, broken_listing, in_order, read_xml

#: Most that the service returns at once.
_PAGE_KEYS: Final = 5000
#: The first version of the service that can begin a listing in its middle.
_START_VERSION: Final = "2026-02-06"
#: Characters from here on have another order in UTF-16 than in UTF-8.
_FIRST_UNORDERED: Final = "\ud800"


def objects(
    container: Container, prefix: str, start_after: str | None, what: str
) -> Iterator[ObjectInfo]:
    """Every blob under `prefix`, ascending.

    Raises StoreError when the listing may be incomplete; see `ObjectStore.list`.
    """
    last = start_after
    rows = _sorted_runs(_flat(container, prefix, start_after, what))
    while True:
        try:
            for row in in_order(rows, prefix, what):
                if start_after is None or row.key > start_after:
                    last = row.key
                    yield row
            return
        except _Hierarchical:
            start_after = last
            rows = _tree(container, prefix, start_after, what)


def is_hierarchical(container: Container, what: str) -> bool:
    """Whether the account has a hierarchical namespace; also False for an empty container. 1 call.

    Only blobs of such accounts have a resource type.
    """
    return any(
        page.find("Blobs/*/Properties/ResourceType") is not None
        for page in islice(_pages(container, "", None, what, maxresults="1"), 1)
    )


class _Hierarchical(Exception):
    """The account has a hierarchical namespace: its order is that of folders, not of names."""


def _sorted_runs(rows: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
    for _, run in groupby(rows, key=_run_of):
        yield from sorted(run, key=lambda row: row.key)


def _flat(
    container: Container, prefix: str, start_after: str | None, what: str
) -> Iterator[ObjectInfo]:
    """In the service's order. Raises _Hierarchical before the first row of such an account."""
    for page in _pages(container, prefix, start_after, what):
        if page.find("Blobs/Blob/Properties/ResourceType") is not None:
            raise _Hierarchical
        yield from _infos(page, what)


def _tree(
    container: Container, prefix: str, start_after: str | None, what: str
) -> Iterator[ObjectInfo]:
    """Folder by folder, each sorted in memory; folders before `start_after` are left out."""
    found: dict[str, ObjectInfo | None] = {}
    for page in _pages(container, prefix, None, what, delimiter="/"):
        found |= {row.key: row for row in _infos(page, what)}
        with mapped(what):
            found |= dict.fromkeys(map(_name, page.iterfind("Blobs/BlobPrefix")))
    for name in sorted(found):
        row = found[name]
        if row is not None:
            yield row
        elif start_after is None or name > start_after or start_after.startswith(name):
            yield from _tree(container, name, start_after, what)


def _run_of(row: ObjectInfo) -> tuple[str, bool]:
    """Keys of one run may come in the order of UTF-16; a run is sorted whole."""
    for position, character in enumerate(row.key):
        if character >= _FIRST_UNORDERED:
            return row.key[:position], True
    return row.key, False


def _pages(
    container: Container, prefix: str, start_after: str | None, what: str, **more: str
) -> Iterator[Element]:
    marker, start = "", start_after
    while True:
        with mapped(what):
            try:
                body = container.send(_page(prefix, marker, start, more)).body
            except Refused as error:
                # A service of an older version lists from the beginning.
                if not start or marker or error.code not in ("InvalidHeaderValue", "InvalidInput"):
                    raise
                start = None
                continue
            root = page_of(body, container)
        yield root
        following = root.findtext("NextMarker") or ""
        if not following:
            return
        if following == marker:
            raise broken_listing(what, "the marker of the next page is repeated")
        marker = following


def page_of(body: bytes, container: Container) -> Element:
    """Raises NoAnswer. The page says whether it is the last one."""
    root = read_xml(body, "EnumerationResults")
    name = container.spec.bucket.partition("/")[2]
    if root.get("ContainerName", name) != name:
        raise NoAnswer(f"is of the container {root.get('ContainerName')}")
    for wanted in ("Blobs", "NextMarker"):
        if root.find(wanted) is None:
            raise NoAnswer(f"has no {wanted}")
    return root


def _page(prefix: str, marker: str, start: str | None, more: Mapping[str, str]) -> AzureRequest:
    query = {"restype": "container", "comp": "list", "maxresults": str(_PAGE_KEYS), **more}
    query["include"] = "metadata"
    headers = {}
    if prefix:
        query["prefix"] = prefix
    if start:
        headers["x-ms-version"] = _START_VERSION
    if marker:
        query["marker"] = marker
    elif start:
        query["startFrom"] = start
    return AzureRequest("GET", "", 200, headers, query)


def _infos(page: Element, what: str) -> list[ObjectInfo]:
    with mapped(what):
        return [
            _info(row)
            for row in page.iterfind("Blobs/Blob")
            # Accounts with a hierarchical namespace list their directories beside the blobs.
            if row.findtext("Properties/ResourceType") != "directory"
        ]


def _info(row: Element) -> ObjectInfo:
    found = {entry.tag.lower(): entry.text or "" for entry in row.iterfind("Properties/*")}
    headers = {
        "x-ms-access-tier": found.get("accesstier", "Hot"),
        "x-ms-access-tier-inferred": found.get("accesstierinferred", ""),
        "x-ms-tag-count": found.get("tagcount", ""),
        "x-ms-blob-type": found.get("blobtype", "BlockBlob"),
        "content-md5": found.get("content-md5", ""),
        "x-ms-expiry-time": found.get("expiry-time", ""),
        "x-ms-immutability-policy-until-date": found.get("immutabilitypolicyuntildate", ""),
        "x-ms-legal-hold": found.get("legalhold", ""),
    }
    metadata = {METADATA + one.tag.lower(): one.text or "" for one in row.iterfind("Metadata/*")}
    attributes, size_bytes = attributes_of(metadata), size_of(found)
    return ObjectInfo(
        key=_name(row),
        size_bytes=size_bytes,
        # Listings give ETags without quotes, all other answers with them.
        etag=f'"{found["etag"].strip(chr(34))}"',
        last_modified=modified_at(found),
        not_carried=not_carried_of(headers),
        storage_class=tier_of(headers),
        archived=_why_archived(found),
        md5=md5_of(headers),
        made_of=recorded_source(attributes),
        is_folder=size_bytes == 0 and attributes.marks_folder,
    )


def _why_archived(found: Mapping[str, str]) -> str:
    """See `ObjectInfo.archived`; for the properties of a row."""
    if found.get("accesstier") != "Archive":
        return ""
    if found.get("archivestatus", "").startswith("rehydrate-pending"):
        return "it is archived, and its rehydration is in progress: copy again when it has ended"
    return (
        "it is archived in the tier Archive: rehydrate it (az storage blob set-tier --tier Hot), "
        "then copy again"
    )


def _name(row: Element) -> str:
    """Of a blob or a folder. Raises NoAnswer."""
    name = row.find("Name")
    if name is None or not name.text:
        raise NoAnswer("has a row without a name")
    return unquote(name.text) if name.get("Encoded") == "true" else name.text
