"""One bit of what a source's store answers is changed on the way.

The table of docs/reference/semantics.md names the checksums. An object that has one there is read
again until its bytes are right, or fails; one that has none is counted.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import md5
from pathlib import Path
from typing import Any, Final

import pytest
from azure.storage.blob import ContentSettings
from tests.e2e.places import UNAVAILABLE, Place, emulated
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import Rule
from tests.gateway.service.in_process_fleet import content, copy_spec, memory_spec, route

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import ChecksumMismatch
from skyplane_gateway.common.objects import Credentials, ObjectAttributes, StoreSpec
from skyplane_gateway.stores.registry import open_without_retries

MIB: Final = 1 << 20
PAGE: Final = Path(__file__).parents[3] / "docs/reference/semantics.md"
ROOMY: Final = {"assembly_mib": 128}
WHOLE: Final = 9 * MIB


@dataclass(frozen=True)
class Source:
    """A row of the table."""

    kind: str
    options: tuple[tuple[str, str], ...] = ()
    is_trusted: bool = False

    @property
    def spec_options(self) -> tuple[tuple[str, str], ...]:
        return (*self.options, *((("checksum", "trusted"),) if self.is_trusted else ()))


SOURCES: Final = {
    "S3 at AWS, or with `checksum=trusted`": Source("s3", is_trusted=True),
    "other S3 servers": Source("s3"),
    "Google": Source("gcs"),
    "Azure": Source("azure"),
    "Azure with `checksum=trusted`": Source("azure", is_trusted=True),
    "files": Source("file"),
}
#: How an object came to its store, and how it is sent: the columns of the table.
COLUMNS: Final = ("one wrote, sent whole", "parts wrote, sent whole", "sent in parts")
#: Below, at and above the largest object that is read on the event loop; one chunk; several.
SIZES: Final = {
    "one wrote, sent whole": (1, 777, MIB, MIB + 1, WHOLE),
    "parts wrote, sent whole": (5 * MIB + 1,),
    "sent in parts": (WHOLE + 1,),
}


def table() -> dict[tuple[str, str], str]:
    """Row and column -> the checksum that is compared."""
    _, _, rest = PAGE.read_text().partition("<!-- test: compared -->\n")
    lines = [line.strip("|").split("|") for line in rest.partition("\n\n")[0].splitlines()]
    head, _, *rows = [[cell.strip() for cell in line] for line in lines]
    assert tuple(head[1:]) == COLUMNS
    return {
        (row[0], name): cell for row in rows for name, cell in zip(head[1:], row[1:], strict=True)
    }


TABLE: Final = table()


def test_every_row_of_the_table_is_tried() -> None:
    assert {row for row, _ in TABLE} == set(SOURCES)
    assert {cell == "nothing" for cell in TABLE.values()} == {True, False}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("flipped"), "flipped") as made:
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


@dataclass
class End:
    """A filled source and its proxy."""

    spec: StoreSpec
    credentials: Credentials | None
    proxy: FaultProxy
    bodies: dict[str, bytes]
    columns: dict[str, str]

    def reads(self, key: str) -> str:
        """The target of a read of that object, on every store."""
        return rf"^(?!/storage/).*(/|%2F){re.escape(key)}(\?|\Z)"

    @property
    def flipped(self) -> set[str]:
        """Targets of harmed answers."""
        return {row.target for row in self.proxy.log.exchanges if row.fault == "flip"}


@pytest.fixture(params=[name for name in SOURCES if name != "files"])
def end(request: pytest.FixtureRequest, places: dict[str, Place]) -> Iterator[tuple[str, End]]:
    source = SOURCES[request.param]
    place = places[source.kind]
    spec = StoreSpec(
        place.kind, place.bucket, place.endpoint, "us-east-1", tuple(sorted(source.spec_options))
    )
    # So every S3 server keeps the checksum of the whole object.
    trusted = () if source.kind == "gcs" else (("checksum", "trusted"),)
    store = open_without_retries(replace(spec, options=trusted), place.credentials)
    bodies, columns = {}, {}
    for column, sizes in SIZES.items():
        for size in sizes:
            key = f"{COLUMNS.index(column)}-{size}"
            bodies[key], columns[key] = os.urandom(size), column
            if column == "one wrote, sent whole":
                store.put(f"from/{key}", bodies[key], crc32c=crc32c(bodies[key]))
            else:
                _put_in_parts(store, f"from/{key}", bodies[key])
    store.close()
    with running(place.endpoint) as proxy:
        yield (
            request.param,
            End(replace(spec, endpoint_url=proxy.url), place.credentials, proxy, bodies, columns),
        )


def _put_in_parts(store: Any, key: str, body: bytes) -> None:
    upload_id, parts = store.create_upload(key), []
    for number, offset in enumerate(range(0, len(body), 5 * MIB), start=1):
        piece = body[offset : offset + 5 * MIB]
        parts.append(
            store.put_part(key, upload_id, number, piece, offset=offset, crc32c=crc32c(piece))
        )
    store.complete_upload(key, upload_id, parts, size_bytes=len(body), crc32c=crc32c(body))


ROUTES: Final = {"in the process": ("a",), "over gateways": ("a", "r", "b")}
WAYS: Final = [
    pytest.param(way, marks=[pytest.mark.long] if "gateways" in way else []) for way in ROUTES
]


def copied(
    fleet_of: Any,
    way: str,
    source: StoreSpec,
    to: StoreSpec,
    *,
    prefix: str = "from/",
    credentials: Credentials | None = None,
) -> dict[str, Any]:
    async def scenario() -> dict[str, Any]:
        sizes = {"chunk_bytes": 5 * MIB, "whole_bytes": WHOLE}
        spec = copy_spec(source, to, source_prefix=prefix, **sizes)
        async with fleet_of(route(0, *ROUTES[way]), **ROOMY) as fleet:
            return dict(await fleet.run(spec, source_credentials=credentials))

    return asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_bit_that_is_flipped_once_arrives_right_where_the_table_says_so(
    end: tuple[str, End], way: str, fleet_of: Any
) -> None:
    name, source = end
    compared = {key: TABLE[name, column] != "nothing" for key, column in source.columns.items()}
    for key in source.bodies:
        source.proxy.schedule.add(Rule("flip", "GET", source.reads(key)))
    to = memory_spec()
    status = copied(fleet_of, way, source.spec, to, credentials=source.credentials)
    assert (status["state"], status["copied"]) == ("succeeded", len(source.bodies))
    assert len(source.flipped) == len(source.bodies)
    found = content(to)
    assert {key: found[key] == body for key, body in source.bodies.items()} == compared
    assert status["unchecked"] == list(compared.values()).count(False)


@pytest.mark.parametrize("way", WAYS)
def test_a_bit_that_is_always_flipped_fails_its_object_where_the_table_says_so(
    end: tuple[str, End], way: str, fleet_of: Any
) -> None:
    name, source = end
    compared = {key for key, column in source.columns.items() if TABLE[name, column] != "nothing"}
    for key in source.bodies:
        source.proxy.schedule.add(Rule("flip", "GET", source.reads(key), times=0))
    to = memory_spec()
    status = copied(fleet_of, way, source.spec, to, credentials=source.credentials)
    assert len(source.flipped) == len(source.bodies)
    failures = {row["source"].removeprefix("from/"): row for row in status["failures"]}
    assert set(failures) == compared
    assert {row["code"] for row in failures.values()} <= {"checksum-mismatch"}
    for key, row in failures.items():
        (algorithm,) = re.findall(r" has (\w+) ", row["reason"])
        assert algorithm in TABLE[name, source.columns[key]], "the page names it"
    assert not compared & set(content(to)), "nothing wrong is left behind"
    assert status["copied"] == len(source.bodies) - len(compared)
    by_md5 = [row["reason"] for row in failures.values() if " MD5 " in row["reason"]]
    assert all("content-md5=ignore" in reason for reason in by_md5)


def test_an_option_reads_an_object_whose_stated_md5_is_wrong(
    places: dict[str, Place], fleet_of: Any
) -> None:
    """Azure keeps what a writer claims."""
    place = places["azure"]
    wrong = ContentSettings(content_md5=bytearray(md5(b"wrong", usedforsecurity=False).digest()))
    with place.container_client() as container:
        for key in ("wrong/small", "wrong/large"):
            body = b"right" * (1 if "small" in key else MIB)
            blob = container.get_blob_client(key)
            blob.upload_blob(body, overwrite=True)
            blob.set_http_headers(wrong)
    spec = StoreSpec(place.kind, place.bucket, place.endpoint)
    to = memory_spec()
    given: Any = {"prefix": "wrong/", "credentials": place.credentials}
    status = copied(fleet_of, "in the process", spec, to, **given)
    assert (status["copied"], status["failed"]) == (0, 2)
    assert all("content-md5=ignore" in row["reason"] for row in status["failures"])
    ignoring = replace(spec, options=(("content-md5", "ignore"),))
    status = copied(fleet_of, "in the process", ignoring, to, **given)
    assert (status["copied"], status["failed"], status["unchecked"]) == (2, 0, 2)
    assert content(to)["small"] == b"right"


def test_an_etag_of_s3_that_is_an_md5_is_compared_unless_an_option_says_otherwise(
    places: dict[str, Place], fleet_of: Any
) -> None:
    place = places["s3"]
    client = place.s3_client()
    client.put_object(Bucket=place.bucket, Key="plain/small", Body=b"body")
    client.put_object(Bucket=place.bucket, Key="plain/large", Body=os.urandom(2 * MIB))
    client.close()
    given: Any = {"prefix": "plain/", "credentials": place.credentials}
    with running(place.endpoint, [Rule("flip", "GET", "/plain/", times=0)]) as proxy:
        spec = StoreSpec("s3", place.bucket, proxy.url, "us-east-1", (("checksum", "none"),))
        status = copied(fleet_of, "in the process", spec, memory_spec(), **given)
        assert (status["copied"], status["failed"]) == (0, 2)
        assert all("content-md5=ignore" in row["reason"] for row in status["failures"])
        ignoring = replace(spec, options=(("checksum", "none"), ("content-md5", "ignore")))
        status = copied(fleet_of, "in the process", ignoring, memory_spec(), **given)
        assert (status["copied"], status["failed"], status["unchecked"]) == (2, 0, 2)


def test_files_are_not_counted_as_unchecked(tmp_path: Path, fleet_of: Any) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from/k").write_bytes(b"body")
    spec = StoreSpec("file", str(tmp_path))
    status = copied(fleet_of, "in the process", spec, memory_spec())
    assert (status["copied"], status["unchecked"]) == (1, 0)


@pytest.mark.parametrize(("kind", "target"), [("gcs", "alt=media"), ("azure", "/uploads/")])
def test_the_attributes_of_an_upload_are_those_that_it_began_with(
    places: dict[str, Place], kind: str, target: str
) -> None:
    """The parts' temporary objects have a marker with them, which is read for the commit."""
    place, began = places[kind], ObjectAttributes(metadata=(("owner", "somebody"),))
    marker = Rule("rewrite", "GET", target, pattern=b"somebody", replacement=b"anybody.")
    with running(place.endpoint, [marker]) as proxy:
        store = open_without_retries(StoreSpec(kind, place.bucket, proxy.url), place.credentials)
        upload_id = store.create_upload("k", began)
        part = store.put_part("k", upload_id, 1, b"body", offset=0, crc32c=crc32c(b"body"))
        given: Any = {"size_bytes": 4, "crc32c": part.crc32c}
        with pytest.raises(ChecksumMismatch):
            store.complete_upload("k", upload_id, [part], **given)
        made = store.complete_upload("k", upload_id, [part], **given)
        store.close()
    assert made.attributes is not None
    assert made.attributes.metadata == began.metadata
