"""Parts of botocore in a quicker form: sessions, data files, and its parser of listings.

botocore registers its handlers anew for each session, looks into the folders of all services,
reads its files into ordered dicts, and each time of a listing through dateutil. A small job would
do all that longer than anything else.
"""

from __future__ import annotations

import gzip
import json
import os
from copy import copy
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from botocore.hooks import HierarchicalEmitter
from botocore.loaders import JSONFileLoader, Loader
from botocore.parsers import ResponseParser, ResponseParserFactory, RestXMLParser
from botocore.session import Session

_LISTING: Final = "ListObjectsV2Output"
_ROOT: Final = "ListBucketResult"
#: Elements of a page, beside its rows, that a caller or botocore's own handlers read.
_PAGE_TEXTS: Final = frozenset({"EncodingType", "NextContinuationToken", "Prefix", "StartAfter"})
_ROW_TEXTS: Final = frozenset({"Key", "ETag", "StorageClass"})


class _JsonFiles(JSONFileLoader):
    """Reads plain dicts, which are ordered as well."""

    def load_file(self, file_path: str) -> Any:
        for name, open_file in ((f"{file_path}.json", open), (f"{file_path}.json.gz", gzip.open)):
            if Path(name).is_file():
                with open_file(name, "rb") as file:
                    return json.loads(file.read())
        return None


class _Descriptions(Loader):
    """Lists services without a look at what each of them has."""

    def list_available_services(self, type_name: str) -> list[str]:
        places = [Path(place) for place in self.search_paths]
        folders = (entry for place in places if place.is_dir() for entry in place.iterdir())
        return sorted({folder.name for folder in folders})


@cache
def descriptions(data_path: str | None) -> Loader:
    """botocore's service descriptions, read once; `data_path` as in its configuration."""
    parts = data_path.split(os.pathsep) if data_path is not None else []
    folders = [os.path.expanduser(os.path.expandvars(part)) for part in parts]  # noqa: PTH111
    return _Descriptions(extra_search_paths=folders, file_loader=_JsonFiles())


@cache
def _builtin_events() -> HierarchicalEmitter:
    """botocore's own handlers, which are the same for every session."""
    events = HierarchicalEmitter()
    Session(event_hooks=events)
    return events


def new_session(profile: str | None = None) -> Session:
    """A session with botocore's own handlers."""
    events = copy(_builtin_events())
    return Session(event_hooks=events, include_builtin_handlers=False, profile=profile)


class Parsers(ResponseParserFactory):
    """botocore's parsers, and the one of this module for S3."""

    def create_parser(self, protocol_name: str) -> ResponseParser:
        if protocol_name != "rest-xml":
            return super().create_parser(protocol_name)
        return _ListingParser()


class _ListingParser(RestXMLParser):
    """Parses pages of listings itself, and leaves to botocore what it does not understand."""

    def parse(self, response: Any, shape: Any) -> Any:
        if response["status_code"] == 200 and shape is not None and shape.name == _LISTING:
            page = page_of(response["body"])
            if page is not None:
                headers = {name.lower(): text for name, text in response["headers"].items()}
                page["ResponseMetadata"] = {"HTTPStatusCode": 200, "HTTPHeaders": headers}
                return page
        return super().parse(response, shape)


def page_of(body: bytes) -> dict[str, Any] | None:
    """A page of a listing as botocore returns it, with the fields that are used here.

    None for anything that is not such a page.
    """
    try:
        root = ElementTree.fromstring(body)
        if _name(root) != _ROOT:
            return None
        rows: list[dict[str, Any]] = []
        page: dict[str, Any] = {"Contents": rows}
        for element in root:
            name = _name(element)
            if name == "Contents":
                rows.append(_row(element))
            elif name in _PAGE_TEXTS:
                page[name] = element.text or ""
            elif name == "IsTruncated":
                page[name] = element.text == "true"
            elif name == "KeyCount":
                page[name] = int(element.text or "")
    except (ElementTree.ParseError, ValueError):
        return None
    return page if all("Key" in row for row in rows) else None


def _row(element: ElementTree.Element) -> dict[str, Any]:
    """Raises ValueError for a size or a time that botocore has to look at."""
    row: dict[str, Any] = {}
    for child in element:
        name = _name(child)
        if name in _ROW_TEXTS:
            row[name] = child.text or ""
        elif name == "Size":
            row[name] = int(child.text or "")
        elif name == "LastModified":
            row[name] = _time(child.text)
        elif name == "RestoreStatus":
            row[name] = _restore_status(child)
    return row


def _restore_status(element: ElementTree.Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for child in element:
        name = _name(child)
        if name == "IsRestoreInProgress":
            found[name] = child.text == "true"
        elif name == "RestoreExpiryDate":
            found[name] = _time(child.text)
    return found


def _time(text: str | None) -> datetime:
    time = datetime.fromisoformat(text or "")
    if time.tzinfo is None:
        raise ValueError(text)
    return time


def _name(element: ElementTree.Element) -> str:
    """The name without its namespace; some servers give none."""
    return element.tag.rpartition("}")[2]
