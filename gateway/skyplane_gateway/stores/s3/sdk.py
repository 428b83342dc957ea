"""Parts of botocore in a quicker form: sessions, data files, and its parser of listings.

botocore registers its handlers anew for each session, looks into the folders of all services,
reads its files into ordered dicts, and each time of a listing through dateutil. A small job would
do all that longer than anything else.

botocore takes any body for an answer: an empty one is a listing without rows. So the parser also
checks their shapes.
"""

from __future__ import annotations

import gzip
import json
import os
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

from botocore.exceptions import BotoCoreError
from botocore.hooks import HierarchicalEmitter
from botocore.loaders import JSONFileLoader, Loader
from botocore.parsers import (
    ResponseParser,
    ResponseParserError,
    ResponseParserFactory,
    RestXMLParser,
)
from botocore.session import Session

from skyplane_gateway.stores.response_validation import (
    UNREADABLE,
    NoAnswer,
    is_number,
    local_name,
    read_xml,
)

_LISTING: Final = "ListObjectsV2Output"
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


class BadAnswer(BotoCoreError):
    """See `NoAnswer`."""

    fmt = "{why}"


@dataclass(frozen=True, slots=True)
class _Document:
    """The body of an answer: the elements that it and its rows need.

    `roots` is empty where servers differ in its name, `rows` for an answer without rows.
    """

    needed: str
    roots: tuple[str, ...] = ()
    rows: str = ""
    needed_of_rows: tuple[str, ...] = ()


#: By botocore's name of the answer.
_DOCUMENTS: Final = {
    _LISTING: _Document(
        "IsTruncated", ("ListBucketResult",), "Contents", ("Key", "Size", "LastModified")
    ),
    "ListMultipartUploadsOutput": _Document(
        "IsTruncated", ("ListMultipartUploadsResult",), "Upload", ("Key", "UploadId", "Initiated")
    ),
    # moto has a name of its own.
    "ListPartsOutput": _Document(
        "IsTruncated", ("ListPartsResult", "ListPartsResponse"), "Part", ("PartNumber", "Size")
    ),
    "CreateMultipartUploadOutput": _Document("UploadId"),
    "UploadPartCopyOutput": _Document("ETag"),
    "CompleteMultipartUploadOutput": _Document("ETag"),
    "GetObjectTaggingOutput": _Document("", ("Tagging",)),
}
#: Answers that have no body, and their status.
_EMPTY: Final = {
    "PutObjectOutput": 200,
    "UploadPartOutput": 200,
    "DeleteObjectOutput": 204,
    "AbortMultipartUploadOutput": 204,
}


class Parsers(ResponseParserFactory):
    """botocore's parsers, and the one of this module for S3."""

    def create_parser(self, protocol_name: str) -> ResponseParser:
        if protocol_name != "rest-xml":
            return super().create_parser(protocol_name)
        return _CheckingParser()


class _CheckingParser(RestXMLParser):
    """Checks answers, and parses pages of listings itself where it understands them."""

    def parse(self, response: Any, shape: Any) -> Any:
        """Raises BadAnswer."""
        try:
            page = None
            if response["status_code"] < 300 and shape is not None:
                page = _checked(response, shape.name)
            return super().parse(response, shape) if page is None else page
        except NoAnswer as error:
            raise BadAnswer(why=error) from error
        except (ResponseParserError, *UNREADABLE) as error:
            raise BadAnswer(why=f"cannot be read ({type(error).__name__})") from error


def _checked(response: Any, name: str) -> dict[str, Any] | None:
    """The answer if it is a page; None for another one, which has the shape of that name.

    An error in a 200 gets the status 500, as botocore does. Raises NoAnswer.
    """
    body, document = response["body"], _DOCUMENTS.get(name)
    if document is None and (name not in _EMPTY or not body):
        if response["status_code"] != _EMPTY.get(name, response["status_code"]):
            raise NoAnswer(f"has the status {response['status_code']}, not {_EMPTY[name]}")
        return None
    roots = document.roots if document is not None else ()
    root = read_xml(body, *roots, *(("Error",) if roots else ()))
    if local_name(root) == "Error":
        _require(root, "Code")
        response["status_code"] = 500
        return None
    if document is None:
        raise NoAnswer("has a body")
    page = page_of(root) if name == _LISTING else None
    if page is not None:
        headers = {name.lower(): text for name, text in response["headers"].items()}
        page["ResponseMetadata"] = {"HTTPStatusCode": 200, "HTTPHeaders": headers}
        return page
    _require(root, document.needed)
    for row in root:
        if local_name(row) == document.rows:
            _require(row, *document.needed_of_rows)
    return None


def _require(element: Element, *names: str) -> None:
    found = {local_name(child): child.text or "" for child in element}
    for name in filter(None, names):
        text = found.get(name, "")
        if not text or (name == "IsTruncated" and text not in ("true", "false")):
            raise NoAnswer(f"has no {name} in {local_name(element)}")
        if name in ("Size", "PartNumber") and not is_number(text):
            raise NoAnswer(f"has a {name} that is no number")
        if name in ("LastModified", "Initiated") and ":" not in text:
            raise NoAnswer(f"has a {name} that is no time")


def page_of(root: Element) -> dict[str, Any] | None:
    """A page of a listing as botocore returns it, with the fields that are used here.

    None for a page that botocore has to look at.
    """
    rows: list[dict[str, Any]] = []
    page: dict[str, Any] = {"Contents": rows}
    try:
        for element in root:
            name = local_name(element)
            if name == "Contents":
                rows.append(_row(element))
            elif name in _PAGE_TEXTS:
                page[name] = element.text or ""
            elif name == "IsTruncated":
                page[name] = {"true": True, "false": False}[element.text or ""]
            elif name == "KeyCount":
                page[name] = int(element.text or "")
    except (LookupError, ValueError):
        return None
    return page if "IsTruncated" in page else None


def _row(element: Element) -> dict[str, Any]:
    """Raises LookupError, ValueError for a size or a time that botocore has to look at."""
    row: dict[str, Any] = {}
    for child in element:
        name = child.tag.rpartition("}")[2]
        if name in _ROW_TEXTS:
            row[name] = child.text or ""
        elif name == "Size":
            if child.text is None or not is_number(child.text):
                raise ValueError(child.text)
            row[name] = int(child.text)
        elif name == "LastModified":
            row[name] = _time(child.text)
        elif name == "RestoreStatus":
            row[name] = _restore_status(child)
    row["Key"], row["Size"], row["LastModified"]
    return row


def _restore_status(element: Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for child in element:
        name = local_name(child)
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
