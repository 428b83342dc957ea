"""Paged listings of Google Cloud Storage, checked to be complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores.gcs.client import GcsClient
from skyplane_gateway.stores.gcs.error_mapping import mapped
from skyplane_gateway.stores.gcs.requests import ROW_FIELDS, info_of, require_object
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER
from skyplane_gateway.stores.response_validation import NoAnswer, broken_listing, in_order, require

_PAGE_KEYS: Final = 1000


def pages(client: GcsClient, prefix: str, what: str, fields: str, **query: str) -> Iterator[Any]:
    """The pages of a listing, as JSON. A page without objects may be followed by others."""
    query = {
        "prefix": prefix,
        "maxResults": str(_PAGE_KEYS),
        "fields": f"kind,items({fields}),prefixes,nextPageToken",
        **query,
    }
    while True:
        page = client.send_for_json("GET", client.urls.objects(**query), what, "storage#objects")
        with mapped(what):
            _require_page(page, prefix)
        yield page
        token = page.get("nextPageToken")
        if not token:
            return
        if token == query.get("pageToken"):
            raise broken_listing(what, "the token of the next page is repeated")
        query["pageToken"] = token


def _require_page(page: Mapping[str, Any], prefix: str) -> None:
    """Raise NoAnswer for a page with other values than rows, folders and a token."""
    for name, kind in (("items", dict), ("prefixes", str)):
        rows = page.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, kind) for row in rows):
            raise NoAnswer(f"has {name} of another type")
    if "nextPageToken" in page:
        require(page, "nextPageToken")
    for row in page.get("items", ()):
        require(row, "name")
        require_object(row["name"], row)
        if not row["name"].startswith(prefix):
            raise NoAnswer(f"has {row['name']!r}, which is not asked for")


def objects(
    client: GcsClient, prefix: str, start_after: str | None, what: str
) -> Iterator[ObjectInfo]:
    """Every object under `prefix`, ascending, without the parts of open uploads.

    Raises StoreError when the listing may be incomplete; see `ObjectStore.list`.
    """
    # The service's start is inclusive.
    start = {"startOffset": start_after} if start_after else {}
    rows = (
        info_of(resource["name"], resource, with_attributes=False)
        for page in pages(client, prefix, what, ROW_FIELDS, **start)
        for resource in page.get("items", ())
    )
    for row in in_order(rows, prefix, what):
        if row.key != start_after and not row.key.startswith(UPLOADS_FOLDER):
            yield row
