"""What the command copies beside the bytes, between every two kinds of bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.e2e.pairs import MIB, Pair, Run, runner
from tests.e2e.places import UNAVAILABLE, Place, emulated

from skyplane_gateway.common.mtime import with_mtime
from skyplane_gateway.common.objects import Credentials, ObjectAttributes
from skyplane_gateway.common.source_version import marked

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

KINDS: Final = ("s3", "gcs", "azure")
#: Classes for 30 and for 90 days.
CLASSES: Final = {
    "s3": ("STANDARD_IA", "GLACIER_IR"),
    "gcs": ("NEARLINE", "COLDLINE"),
    "azure": ("Cool", "Cold"),
}
TAGGED: Final = ("s3", "azure")
TAGS: Final = (("cost centre", "a/b=7"), ("team", "blue+green"))
HEADERS: Final = ObjectAttributes(
    content_type="text/csv", cache_control="max-age=60", metadata=(("with-dash", "blue"),)
)
SIZES: Final = {"large": 6 * MIB, "one": 10, "two": 0}


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory, servers: tuple[S3Server, S3Server]
) -> Iterator[dict[str, Place]]:
    """The S3 server is moto, which has classes and tags."""
    s3 = servers[0]
    keys = Credentials({"access_key_id": "test", "secret_access_key": "test"})
    try:
        with emulated(tmp_path_factory.mktemp("along"), "along") as made:
            yield {**made, "s3": Place("s3", s3.make_bucket("along"), s3.endpoint, keys)}
    except UNAVAILABLE as error:
        pytest.skip(str(error))


@pytest.fixture
def run(home: Home, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    return runner(home, places, monkeypatch, capsys)


@pytest.mark.parametrize(("source", "destination"), list(product(KINDS, KINDS)))
def test_class_and_tags_come_along(
    run: Run, places: dict[str, Place], source: str, destination: str
) -> None:
    """With headers and metadata; all sources have tags where their store has them."""
    ask = {"tags": "keep"} if destination in TAGGED else {}
    pair = Pair(places[source], places[destination], **ask)
    tagged = replace(HEADERS, tags=TAGS if source in TAGGED else ())
    for folder, storage_class in zip(("cool", "cold"), CLASSES[source], strict=True):
        for name, size in SIZES.items():
            attributes = replace(tagged, storage_class=storage_class)
            pair.write(f"{folder}/{name}", bytes(size), attributes)
    tags = ["--src-option", "tags=keep"] if source in TAGGED else []
    result = run("cp", "-r", *pair.arguments, *tags, "--dst-option", "storage-class=keep")
    lost = {"tags": 6} if source in TAGGED and destination not in TAGGED else {}
    assert (result["copied"], result["not_carried_by_name"]) == (6, lost)
    kept = tagged if destination in TAGGED else HEADERS
    for folder, expected in zip(("cool", "cold"), CLASSES[destination], strict=True):
        for name in SIZES:
            info = pair.there.head(pair.copy_key(f"{folder}/{name}"))
            assert info.storage_class == expected
            assert info.attributes is not None
            assert marked(info.attributes, None) == kept
    pair.close()


@pytest.mark.parametrize("source", KINDS)
def test_a_file_gets_the_time_in_the_metadata_and_is_not_copied_again(
    run: Run, places: dict[str, Place], source: str
) -> None:
    pair = Pair(places[source], places["file"])
    for name, size in SIZES.items():
        pair.write(name, bytes(size), with_mtime(HEADERS, 1_600_000_000_123_456_000))

    def times() -> dict[str, int]:
        return {name: os.stat(f"/{pair.copy_key(name)}").st_mtime_ns for name in SIZES}

    assert run("sync", *pair.arguments)["copied"] == 3
    assert times() == dict.fromkeys(SIZES, 1_600_000_000_123_456_000)
    again = run("sync", *pair.arguments)
    assert (again["copied"], again["skipped"]) == (0, 3)
    pair.write("one", b"x" * 10, with_mtime(HEADERS, 1_600_000_001_000_000_000))
    # The gateways compare as the command does.
    last = run("sync", *pair.arguments, "--gateways", "always")
    assert (last["copied"], last["skipped"]) == (1, 2)
    assert pair.copied("one") == b"x" * 10
    assert times()["one"] == 1_600_000_001_000_000_000
    pair.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_upload_gets_the_headers_of_its_options(
    run: Run, places: dict[str, Place], kind: str
) -> None:
    pair = Pair(places["file"], places[kind])
    for name, size in SIZES.items():
        pair.write(f"{name}.csv", bytes(size))
    given = [
        *("--content-type", "text/html", "--cache-control", "max-age=5"),
        *("--header", "Content-Disposition: attachment", "--header", "content-language: en"),
        *("--metadata", "owner=me"),
        *(("--header", "Expires: 2037-01-31T06:00:00Z") if kind == "s3" else ()),
    ]
    assert run("cp", "-r", *pair.arguments, *given)["copied"] == len(SIZES)
    assert run("sync", *pair.arguments, *given)["copied"] == 0
    for name in SIZES:
        info = pair.there.head(pair.copy_key(f"{name}.csv"))
        found = info.attributes
        assert found is not None
        assert (found.content_type, found.cache_control) == ("text/html", "max-age=5")
        assert (found.content_disposition, found.content_language) == ("attachment", "en")
        assert dict(found.metadata)["owner"] == "me"
        assert ("expires" in info.not_carried) == (kind == "s3")
    pair.close()
