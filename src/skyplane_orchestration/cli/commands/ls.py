"""`ls`: lists the objects at a place."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.cli import arguments
from skyplane_orchestration.cli.client_factory import open_client
from skyplane_orchestration.cli.console import Console, printable
from skyplane_orchestration.cli.exit_codes import SUCCESS, as_bad_input
from skyplane_orchestration.cli.job_from_options import location_from
from skyplane_orchestration.cli.option_parser import Subparsers, add_flags
from skyplane_orchestration.errors import NotFound
from skyplane_orchestration.formatting import counted, size

if TYPE_CHECKING:
    from skyplane_gateway.common.objects import ObjectInfo
    from skyplane_orchestration.model.location import Location

#: Columns of a time, and of a size, as `aws s3 ls` has them.
_TIME, _SIZE = 19, 10


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("ls", help="list objects and folders, with sizes and sums")
    parser.add_argument("src", metavar="URL", help=f"what to list: {arguments.ANY_PLACE}")
    arguments.add_location(parser.add_argument_group("location"), "src", "place")
    group = parser.add_argument_group("objects")
    group.add_argument(
        "-r", "--recursive", action="store_true", help="list all objects below URL, no folders"
    )
    group.add_argument(
        "-l", "--long", action="store_true", help="also print storage class, checksum and ETag"
    )
    add_flags(group, summarize="print the number and the size of all objects at the end")
    arguments.add_common(parser, run)


def run(options: argparse.Namespace, console: Console) -> int:
    with as_bad_input():
        client = open_client(options)
        place = location_from(options, "src")
        # A folder of this machine has a slash, as other tools read paths.
        if _is_folder(place) and not place.url.endswith("/"):
            place = replace(place, url=f"{place.url}/")
        rows = client.listing(place, recursive=options.recursive)
        # A path that is no folder is one file, and no begin of names.
        if place.kind == "file" and not f"/{place.key}".endswith("/"):
            rows = (row for row in rows if not isinstance(row, str) and row.key == place.key)
        first = next(rows, None)
        if first is None and place.key and not _is_folder(place):
            raise NotFound(f"there is nothing at {place.url!r}; check its name")
    totals = {"objects": 0, "folders": 0, "bytes": 0}

    def counted_rows() -> Iterator[ObjectInfo | str]:
        for row in chain(() if first is None else (first,), rows):
            if isinstance(row, str):
                totals["folders"] += 1
            else:
                totals["objects"] += 1
                totals["bytes"] += row.size_bytes
            yield row

    if console.is_json:
        documents = (_document(place, row) for row in counted_rows())
        console.write_rows("objects", documents, {"summary": totals})
        return SUCCESS
    start = place.key.rfind("/") + 1
    console.print_lines(_line(row, start, is_long=options.long) for row in counted_rows())
    if options.summarize:
        folders = f", {counted(totals['folders'], 'folder')}" if totals["folders"] else ""
        console.print(
            f"{counted(totals['objects'], 'object')}, {totals['bytes']} bytes"
            f" ({size(totals['bytes'])}){folders}"
        )
    return SUCCESS


def _is_folder(place: Location) -> bool:
    return place.kind == "file" and os.path.isdir(f"/{place.key}")  # noqa: PTH112


def _document(place: Location, row: ObjectInfo | str) -> dict[str, Any]:
    if isinstance(row, str):
        return {"kind": "folder", "url": place.url_of(row), "key": row}
    return {
        "kind": "object",
        "url": place.url_of(row.key),
        "key": row.key,
        "bytes": row.size_bytes,
        "modified": datetime.fromtimestamp(row.last_modified, UTC).isoformat(),
        "storage_class": row.storage_class,
        "etag": row.etag,
        "crc32c": None if row.crc32c is None else f"{row.crc32c:08x}",
        "md5": row.md5,
    }


def _line(row: ObjectInfo | str, start: int, *, is_long: bool) -> str:
    """A line of `aws s3 ls`: time, size and name below the folder."""
    if isinstance(row, str):
        return f"{'PRE':>{_TIME + 1 + _SIZE}} {printable(row[start:])}"
    time = datetime.fromtimestamp(row.last_modified).strftime("%Y-%m-%d %H:%M:%S")
    more = ""
    if is_long:
        checksum = row.md5 or ("-" if row.crc32c is None else f"crc32c:{row.crc32c:08x}")
        more = f"{row.storage_class or '-':<12} {checksum:<32} {row.etag} "
    return f"{time} {row.size_bytes:>{_SIZE}} {more}{printable(row.key[start:]) or './'}"
