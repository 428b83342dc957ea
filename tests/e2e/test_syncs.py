"""What a sync copies, between every two kinds of store; see docs/reference/objects.md.

The command runs inside the test's process.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.e2e.pairs import MIB, Pair, Run, runner
from tests.e2e.places import UNAVAILABLE, Place, emulated

from skyplane_gateway.common.objects import ObjectAttributes, ObjectInfo, Precondition
from skyplane_gateway.selection.candidates import Lister
from skyplane_gateway.selection.difference import Ends
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.selection.selector import select
from skyplane_gateway.sink.write_verifier import WriteVerifier
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.storage.open import asker_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Home

pytestmark = pytest.mark.e2e

KINDS: Final = ("s3", "gcs", "azure", "file")
HEADERS: Final = ObjectAttributes(content_type="text/csv", metadata=(("colour", "blue"),))
OBJECTS: Final = {"large": 6 * MIB, "one": 10, "part": 5 * MIB, "two": 0}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("syncs"), "syncs") as made:
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


@pytest.fixture
def run(home: Home, places: dict[str, Place], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    return runner(home, places, monkeypatch, capsys)


@pytest.fixture
def pair(request: pytest.FixtureRequest, places: dict[str, Place]) -> Iterator[Pair]:
    made = Pair(*(places[kind] for kind in request.param))
    for name, size in OBJECTS.items():
        made.write(name, b"1" * size)
    yield made
    made.close()


#: The others are for `make test-long`.
CHEAP: Final = (("file", "s3"),)
PAIRS: Final = [
    pytest.param(ends, id="-".join(ends), marks=() if ends in CHEAP else pytest.mark.long)
    for ends in product(KINDS, KINDS)
]


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_the_second_of_two_syncs_copies_nothing(run: Run, pair: Pair) -> None:
    """The sources were written in the second of their copies."""
    assert run("sync", *pair.arguments)["copied"] == 4
    again = run("sync", *pair.arguments)
    assert (again["copied"], again["skipped"]) == (0, 4)
    # With something to do, the lead compares.
    pair.write("new", b"new")
    third = run("sync", *pair.arguments)
    assert (third["copied"], third["skipped"]) == (1, 4)


@pytest.mark.parametrize(
    "pair", [row for row in PAIRS if row.id in ("s3-file", "gcs-file", "azure-file")], indirect=True
)
@pytest.mark.parametrize("rule", ["different", "checksum-differs", "size-differs"])
def test_marks_of_folders_are_copied_once(run: Run, pair: Pair, rule: str) -> None:
    """A file system has them as folders, which no listing of it shows."""
    pair.write("folder/", b"")
    pair.write("other/", b"")
    pair.write("other/zero", b"")
    arguments = ("sync", *pair.arguments, "--conflict", f"replace-if-{rule}")
    assert run(*arguments)["copied"] == 7
    planned = run(*arguments, "--dry-run")["summary"]
    again = run(*arguments)
    assert (planned["copy"], again["copied"], again["skipped"]) == (0, 0, 7)
    # With something to do, the lead compares.
    pair.write("new", b"new")
    third = run(*arguments)
    assert (third["copied"], third["skipped"]) == (1, 7)


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_an_overwrite_in_the_second_of_the_copy_is_found(run: Run, pair: Pair) -> None:
    assert run("sync", *pair.arguments)["copied"] == 4
    for name, size in OBJECTS.items():
        pair.write(name, b"2" * size)
    run("sync", *pair.arguments)
    for name, size in OBJECTS.items():
        assert pair.copied(name) == b"2" * size, name
    again = run("sync", *pair.arguments)
    assert (again["copied"], again["skipped"]) == (0, 4)


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_an_overwrite_between_read_and_commit_is_found(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the first version is then newer than the second version."""
    left = set(OBJECTS)
    fence = WriteVerifier.fence

    def overwritten_first(self: WriteVerifier, key: str, precondition: Precondition) -> Any:
        name = key.rsplit("/", 1)[1]
        if name in left:
            left.remove(name)
            pair.write(name, b"2" * OBJECTS[name])
        return fence(self, key, precondition)

    monkeypatch.setattr(WriteVerifier, "fence", overwritten_first)
    run("sync", *pair.arguments)
    assert left == set()
    run("sync", *pair.arguments)
    for name, size in OBJECTS.items():
        assert pair.copied(name) == b"2" * size, name
    again = run("sync", *pair.arguments)
    assert (again["copied"], again["skipped"]) == (0, 4)


@dataclass(frozen=True)
class Situation:
    """One row of the table "When an object is copied" of docs/reference/objects.md.

    Attributes:
        change: what happens after a first sync: to the pair, at a key.
        source_s, there_s: by how much their listed times then differ from what they are.
        copied: by a rule, for the kinds of both ends; a rule that is left out is not judged here.
        with_manifest: copied by `replace-if-different` where the manifest has a row of the copy.
    """

    change: Callable[[Pair, str], None]
    copied: Mapping[str, bool | Callable[[str, str], bool]]
    with_manifest: bool | Callable[[str, str], bool]
    source_s: float = 0.0
    there_s: float = 0.0
    clock_s: float = 0.0


DIFFERENT: Final = "replace-if-different"
CHECKSUM: Final = "replace-if-checksum-differs"
SIZE: Final = "replace-if-size-differs"
NEWER: Final = "replace-if-newer"

ONE, OTHER, LONGER = b"1" * 9, b"2" * 9, b"3" * 10


def nothing(pair: Pair, name: str) -> None:
    """No change."""


def remove_copy(pair: Pair, name: str) -> None:
    pair.there.delete(pair.copy_key(name))


def source_has(data: bytes, aged_s: float = 0.0) -> Callable[[Pair, str], None]:
    """The source is overwritten; a file gets a time in the past."""

    def change(pair: Pair, name: str) -> None:
        pair.write(name, data)
        if aged_s and pair.ends[0].kind == "file":
            path = f"{pair.ends[0].bucket}/src-{pair.prefix}{name}"
            os.utime(path, (time.time() - aged_s, time.time() - aged_s))

    return change


def copy_has(data: bytes, *, keeps_time: bool = False) -> Callable[[Pair, str], None]:
    """Another tool overwrites the copy, without metadata."""

    def change(pair: Pair, name: str) -> None:
        key = pair.copy_key(name)
        before = pair.there.head(key).last_modified
        pair.there.put(key, data)
        if pair.ends[1].kind == "file" and keeps_time:
            path = f"{pair.ends[1].bucket}/dst-{pair.prefix}{name}"
            os.utime(path, ns=(0, round(before * 1e6) * 1000))

    return change


def has_same_checksums(source: str, there: str) -> bool:
    return {source, there} <= {"s3", "gcs"}


def keeps_equal_bytes(source: str, there: str) -> bool:
    """An ETag of S3 is the same for the same bytes, so a copy is still of that version."""
    return has_same_checksums(source, there) or (source, there) == ("s3", "azure")


def finds_an_edit(source: str, there: str) -> bool:
    return there == "file" or {source, there} <= {"gcs", "azure"}


def has_same_version(source: str, there: str) -> bool:
    """S3 has one ETag for the same bytes; elsewhere checksums in both listings prove them equal."""
    return source == "s3" or (source, there) == ("gcs", "gcs") or has_same_checksums(source, there)


def has_same_copy(source: str, there: str) -> bool:
    """As `has_same_version`, of the copy."""
    return there == "s3" or has_same_checksums(source, there)


SITUATIONS: Final = {
    "1 not at DST": Situation(
        remove_copy, {DIFFERENT: True, CHECKSUM: True, SIZE: True, NEWER: True}, with_manifest=True
    ),
    "3 sizes differ, SRC newer": Situation(
        source_has(LONGER),
        {DIFFERENT: True, CHECKSUM: True, SIZE: True, NEWER: True},
        with_manifest=True,
        there_s=-300,
    ),
    "4 sizes differ, SRC older": Situation(
        source_has(LONGER, 300),
        {DIFFERENT: True, CHECKSUM: True, SIZE: True, NEWER: False},
        with_manifest=True,
        source_s=-300,
    ),
    "5 sizes differ, same time": Situation(
        source_has(LONGER), {DIFFERENT: True, CHECKSUM: True, SIZE: True}, with_manifest=True
    ),
    "6 nothing has changed": Situation(
        nothing, {DIFFERENT: False, CHECKSUM: False, SIZE: False}, with_manifest=False
    ),
    "7 same bytes, SRC written again": Situation(
        source_has(ONE),
        {
            DIFFERENT: lambda *kinds: not keeps_equal_bytes(*kinds),
            CHECKSUM: False,
            SIZE: False,
            NEWER: lambda *kinds: not has_same_checksums(*kinds),
        },
        with_manifest=lambda *kinds: not has_same_version(*kinds),
        there_s=-300,
        source_s=2,
    ),
    "8 other bytes, SRC much newer": Situation(
        source_has(OTHER),
        {DIFFERENT: True, CHECKSUM: True, SIZE: False, NEWER: True},
        with_manifest=True,
        there_s=-300,
        source_s=2,
    ),
    "9 other bytes, SRC a little newer": Situation(
        source_has(OTHER),
        {DIFFERENT: True, CHECKSUM: True, SIZE: False, NEWER: True},
        with_manifest=True,
        there_s=-60,
        source_s=2,
    ),
    "10 other bytes, in the second of the copy": Situation(
        source_has(OTHER), {DIFFERENT: True, CHECKSUM: True, SIZE: False}, with_manifest=True
    ),
    "11 other bytes, while it was copied": Situation(
        source_has(OTHER),
        {DIFFERENT: True, CHECKSUM: True, SIZE: False},
        with_manifest=True,
        there_s=60,
    ),
    "12 other bytes, SRC older": Situation(
        source_has(OTHER, 1000),
        {
            DIFFERENT: lambda source, there: there != "s3" or source == "file",
            CHECKSUM: True,
            SIZE: False,
            NEWER: False,
        },
        with_manifest=True,
        source_s=-1000,
    ),
    "13 same bytes, DST written by another tool": Situation(
        copy_has(ONE),
        {DIFFERENT: lambda _, there: there == "file", CHECKSUM: False, SIZE: False, NEWER: False},
        with_manifest=lambda *kinds: not has_same_copy(*kinds),
        there_s=500,
    ),
    "14 other bytes, DST edited": Situation(
        copy_has(OTHER),
        {DIFFERENT: finds_an_edit, CHECKSUM: True, SIZE: False, NEWER: False},
        with_manifest=True,
        there_s=500,
    ),
    "15 other bytes, DST edited, with the time of SRC": Situation(
        copy_has(OTHER, keeps_time=True),
        {
            DIFFERENT: lambda *kinds: kinds[1] != "file" and finds_an_edit(*kinds),
            CHECKSUM: True,
            SIZE: False,
            NEWER: False,
        },
        with_manifest=True,
        there_s=500,
    ),
    "16 other bytes, the clock of DST is ahead": Situation(
        source_has(OTHER),
        {DIFFERENT: True, CHECKSUM: True, SIZE: False},
        with_manifest=True,
        there_s=660,
        clock_s=600,
    ),
}


def shifted(store: ObjectStore, shifts: Mapping[str, float]) -> Lister:
    """The store's listing with other times; a file keeps its own, which is data."""

    def listed(prefix: str) -> Iterator[ObjectInfo]:
        for row in store.list(prefix):
            by_s = 0.0 if store.spec.kind == "file" else shifts[row.key.rsplit("/", 1)[1]]
            yield replace(row, last_modified=row.last_modified + by_s)

    return listed


@pytest.mark.parametrize("ends", PAIRS)
def test_when_an_object_is_copied(
    run: Run, places: dict[str, Place], ends: tuple[str, str]
) -> None:
    """Row 2, an object that only DST has, is not asked about: see `test_deletes`."""
    pair = Pair(*(places[kind] for kind in ends))
    for name in SITUATIONS:
        pair.write(name, ONE)
    assert run("sync", *pair.arguments)["copied"] == len(SITUATIONS)
    for name, row in SITUATIONS.items():
        row.change(pair, name)
    wrong = []
    for name, row in SITUATIONS.items():
        for conflict, copied in row.copied.items():
            rule = SelectionRule(
                pair.source_key(""),
                pair.copy_key(""),
                conflict=conflict,  # type: ignore[arg-type]
                include=(name,),
            )
            both = Ends(*ends, row.clock_s)
            (found,) = select(
                rule,
                shifted(pair.here, dict.fromkeys(SITUATIONS, row.source_s)),
                shifted(pair.there, dict.fromkeys(SITUATIONS, row.there_s)),
                ask=asker_of(pair.here, pair.there),
                ends=lambda both=both: both,  # type: ignore[misc]
            )
            expected = copied if isinstance(copied, bool) else copied(*ends)
            if (found.action == "copy") is not expected:
                wrong.append((name, conflict, found.action, found.reason))
    assert wrong == []
    pair.close()


def test_every_situation_of_the_table_is_tested() -> None:
    page = Path("docs/reference/objects.md").read_text()
    rows = {int(number) for number in re.findall(r"^\| ([0-9]+)\. ", page, re.MULTILINE)}
    assert rows - {int(name.split()[0]) for name in SITUATIONS} == {2}


@pytest.mark.parametrize("ends", PAIRS)
def test_when_an_object_is_copied_with_a_manifest(
    run: Run, places: dict[str, Place], ends: tuple[str, str]
) -> None:
    """Whatever times and clocks are; for each situation the manifest has a row of the copy."""
    pair = Pair(*(places[kind] for kind in ends))
    for name in SITUATIONS:
        pair.write(name, ONE)
    assert run("sync", *pair.arguments)["copied"] == len(SITUATIONS)
    for name, row in SITUATIONS.items():
        row.change(pair, name)
    expected = {
        name: row.with_manifest if isinstance(row.with_manifest, bool) else row.with_manifest(*ends)
        for name, row in SITUATIONS.items()
    }
    planned = run("sync", *pair.arguments, "--dry-run")["objects"]
    found = {row["source"].rsplit("/", 1)[1]: row["action"] == "copy" for row in planned}
    assert found == expected, planned
    copied = [name for name, is_copied in expected.items() if is_copied]
    # The lead decides as the dry run did.
    assert run("sync", *pair.arguments)["copied"] == len(copied)
    for name in SITUATIONS:
        assert pair.copied(name) == pair.read(name), name
    again = run("sync", *pair.arguments)
    assert (again["copied"], again["skipped"]) == (0, len(SITUATIONS))
    pair.close()


@pytest.mark.parametrize("pair", PAIRS, indirect=True)
def test_checksum_finds_what_no_listing_tells_and_copies_nothing_else(run: Run, pair: Pair) -> None:
    assert run("sync", *pair.arguments)["copied"] == 4
    copy_has(b"2" * 10, keeps_time=True)(pair, "one")
    found = run("sync", "--checksum", *pair.arguments)
    assert (found["copied"], found["skipped"]) == (1, 3)
    assert pair.copied("one") == b"1" * 10
    again = run("sync", "--checksum", *pair.arguments)
    assert (again["copied"], again["skipped"]) == (0, 4)
