from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st
from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.checksum import crc32c as checksum
from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.selection.selector import select
from skyplane_gateway.stores import escape_name
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    EmptySource,
    NotFound,
    StoreUnavailable,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import compare, open as storage_open
from skyplane_orchestration.storage.compare import VerifyReport, verify_job
from skyplane_orchestration.storage.pairs import pairs

NONE = CredentialSources(is_ambient_allowed=False)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("in", "out"):
        for key, body in {"a": b"1", "b": b"22", "sub/c": b"333" * 500_000, "z": b""}.items():
            path = tmp_path / name / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
    return tmp_path / "in", tmp_path / "out"


def verify(places: tuple[Path, Path], **more: Any) -> VerifyReport:
    fields = {name: more.pop(name) for name in ("include", "allow_empty") if name in more}
    job = TransferJob(Location(f"{places[0]}/"), Location(f"{places[1]}/"), **fields)
    return verify_job(job, NONE, **more)


def kinds(report: VerifyReport) -> list[tuple[str, str]]:
    return [
        (row.kind, (row.source or row.destination).rpartition("/")[2]) for row in report.differences
    ]


def test_equal_places(places: tuple[Path, Path]) -> None:
    report = verify(places, with_extra=True)
    assert report.is_equal
    assert (report.objects, report.equal, report.extra) == (4, 4, 0)
    assert report.size_bytes == 1_500_003
    assert report.read_bytes == 2 * 1_500_003, "files have no checksum of their own"
    assert report.to_dict()["is_equal"] is True


def test_every_kind_of_difference(places: tuple[Path, Path]) -> None:
    destination = places[1]
    (destination / "a").write_bytes(b"2")
    (destination / "b").write_bytes(b"longer")
    (destination / "sub/c").unlink()
    (destination / "aa").write_bytes(b"not of the source")
    (destination / "zz").write_bytes(b"not of the source")
    report = verify(places, with_extra=True)
    assert kinds(report) == [
        ("different", "a"),
        ("extra", "aa"),
        ("different", "b"),
        ("missing", "c"),
        ("extra", "zz"),
    ]
    assert not report.is_equal
    assert (report.equal, report.different, report.missing, report.extra) == (1, 2, 1, 2)
    assert "SHA-256" in report.differences[0].reason
    assert report.differences[2].reason == "2 bytes at the source, 6 at the destination"
    assert report.differences[1].source == ""
    without = verify(places)
    assert (without.extra, len(without.differences)) == (None, 3)


def test_extra_objects_alone_matter_only_when_asked_for(places: tuple[Path, Path]) -> None:
    (places[1] / "more").write_bytes(b"x")
    assert verify(places).is_equal
    assert not verify(places, with_extra=True).is_equal
    # What a filter leaves out is no part of the comparison, at either end.
    assert verify(places, with_extra=True, include=("a", "b")).is_equal


def test_a_listing_cannot_see_a_byte_that_differs(places: tuple[Path, Path]) -> None:
    (places[1] / "a").write_bytes(b"2")
    report = verify(places, listing_only=True)
    assert report.is_equal
    assert (report.has_checksums, report.read_bytes) == (False, 0)


def test_nothing_to_compare(places: tuple[Path, Path]) -> None:
    with pytest.raises(EmptySource):
        verify(places, include=("none*",))
    assert verify(places, include=("none*",), allow_empty=True).is_equal
    with pytest.raises(ConfigurationInvalid):
        verify(places, parallel=0)


def test_a_single_object(places: tuple[Path, Path]) -> None:
    source, destination = places

    def one(key: str, there: str) -> VerifyReport:
        ends = Location(f"{source}/{key}"), Location(f"{destination}/{there}")
        return verify_job(TransferJob(*ends, recursive=False), NONE, with_extra=True)

    assert one("a", "a").is_equal
    assert one("a", "").is_equal
    assert one("a", "b").different == 1
    assert one("a", "none").missing == 1
    with pytest.raises(NotFound):
        one("none", "a")


def test_differences_beyond_the_list_are_counted(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "MAX_LISTED_DIFFERENCES", 2)
    for path in places[1].rglob("*"):
        if path.is_file():
            path.unlink()
    report = verify(places)
    assert (report.missing, len(report.differences)) == (4, 2)


def before_reads_of(monkeypatch: pytest.MonkeyPatch, ending: str, act: Callable[[], None]) -> None:
    """Call `act` before each read of a file whose key has that ending."""
    honest = LocalStore.read

    def read(self: LocalStore, key: str, **more: Any) -> Any:
        if key.endswith(ending):
            act()
        return honest(self, key, **more)

    monkeypatch.setattr(LocalStore, "read", read)


def test_an_unreadable_body_does_not_stop_the_comparison(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StoreUnavailable("a disk is failing")

    before_reads_of(monkeypatch, "in/b", fail)
    report = verify(places)
    assert (report.equal, report.unreadable, report.is_equal) == (3, 1, False)
    assert kinds(report) == [("unreadable", "b")]


def test_an_object_that_changes_during_the_comparison_is_different(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        (places[0] / "a").write_bytes(b"9")
        os.utime(places[0] / "a", (1, 1))

    before_reads_of(monkeypatch, "in/a", change)
    assert kinds(verify(places)) == [("different", "a")]


# -- stores that know their checksums


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryStore, MemoryStore]:
    """The buckets of both ends."""
    stores = []
    for name in ("verify-in", "verify-out"):
        create_bucket(name)
        stores.append(MemoryStore(StoreSpec("memory", name)))
    opened = {"in": stores[0], "out": stores[1], "account/out": stores[1]}
    monkeypatch.setattr(
        storage_open, "open_store", lambda spec, *_: opened[spec.bucket], raising=True
    )
    return stores[0], stores[1]


MEMORY_JOB = TransferJob(Location("s3://in/p/"), Location("s3://out/q/"))


def test_objects_with_a_trusted_checksum_are_not_read(
    memory: tuple[MemoryStore, MemoryStore],
) -> None:
    source, destination = memory
    for name in "abc":
        source.put(f"p/{name}", name.encode())
        destination.put(f"q/{name}", name.encode())
    destination.put("q/c", b"x")
    report = verify_job(MEMORY_JOB, NONE)
    assert (report.equal, report.different, report.read_bytes) == (2, 1, 0)


@pytest.mark.parametrize("listing_only", [False, True])
def test_a_folder_is_the_copy_of_its_mark(
    memory: tuple[MemoryStore, MemoryStore],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    listing_only: bool,
) -> None:
    files = LocalStore(StoreSpec("file", "/"))
    opened = {"file": files}
    monkeypatch.setattr(
        storage_open, "open_store", lambda spec, *_: opened.get(spec.kind, memory[0]), raising=True
    )
    for name in ("made/", "other/"):
        memory[0].put(f"p/{name}", b"")
    (tmp_path / "made").mkdir()
    (tmp_path / "other").write_bytes(b"")
    job = TransferJob(Location("s3://in/p/"), Location(f"{tmp_path}/"))
    report = verify_job(job, NONE, listing_only=listing_only, with_extra=True)
    assert kinds(report) == [("extra", "other"), ("missing", "")]
    assert report.equal == 1


def test_copies_with_escaped_names_are_compared(
    memory: tuple[MemoryStore, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the destination's kind of store has it: no file is named `a//b`."""
    opened = {"in": memory[0], "/": memory[1]}
    monkeypatch.setattr(storage_open, "open_store", lambda spec, *_: opened[spec.bucket])
    for name in ("a//b", "gone//c"):
        memory[0].put(f"p/{name}", b"x")
    memory[1].put(f"q/{escape_name('file', 'q/', 'a//b', 1)}", b"x")
    job = TransferJob(Location("s3://in/p/"), Location("/q/"), on_illegal_key="escape")
    report = verify_job(job, NONE, with_extra=True)
    assert (report.equal, report.extra, kinds(report)) == (1, 0, [("missing", "c")])


def test_a_download_reads_both_ends_whatever_the_stores_say(
    memory: tuple[MemoryStore, MemoryStore],
) -> None:
    source, destination = memory
    source.put("p/a", b"ab")
    destination.put("q/a", b"ab")
    report = verify_job(MEMORY_JOB, NONE, download=True)
    assert (report.equal, report.read_bytes) == (1, 4)


def test_bytes_that_keep_the_crc32c_are_found_where_both_ends_are_read(
    places: tuple[Path, Path],
) -> None:
    """The polynomial of CRC32C, added to the body, does not change its checksum."""
    body = bytearray(b"333" * 500_000)
    for place, byte in enumerate(0x1_05EC_76F1.to_bytes(5, "little")):
        body[place] ^= byte
    assert checksum(bytes(body)) == checksum(b"333" * 500_000)
    (places[1] / "sub/c").write_bytes(body)
    report = verify(places)
    assert (report.equal, report.different) == (3, 1)
    assert "SHA-256" in report.differences[0].reason


def test_few_objects_are_in_flight(
    memory: tuple[MemoryStore, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing does not run ahead of the comparison."""
    source, destination = memory
    for i in range(100):
        source.put(f"p/{i:03}", b"x")
        destination.put(f"q/{i:03}", b"x")
    listed = compared = most = 0
    lock = threading.Lock()
    honest_list, honest_compare = MemoryStore.list, compare._Comparison.__call__

    def list_(self: MemoryStore, prefix: str, **more: Any) -> Iterator[ObjectInfo]:
        nonlocal listed, most
        for row in honest_list(self, prefix, **more):
            if prefix == "p/":
                listed += 1
                with lock:
                    most = max(most, listed - compared)
            yield row

    def compare_pair(self: Any, pair: Any) -> Any:
        nonlocal compared
        outcome = honest_compare(self, pair)
        with lock:
            compared += 1
        return outcome

    monkeypatch.setattr(MemoryStore, "list", list_)
    monkeypatch.setattr(compare._Comparison, "__call__", compare_pair)
    assert verify_job(MEMORY_JOB, NONE, parallel=3).equal == 100
    assert most <= 2 * 3 + 1


# -- laws of the join

NAMES = st.text(st.sampled_from("ab/~.é"), min_size=1, max_size=4)


@given(st.sets(NAMES), st.sets(NAMES))
def test_the_join_finds_every_key_once_and_in_order(ours: set[str], theirs: set[str]) -> None:
    def lister(names: set[str], folder: str) -> Any:
        rows = [ObjectInfo(f"{folder}{name}", 1, "e", 0.0) for name in names]
        rows.sort(key=lambda row: row.key.encode())
        return lambda prefix: iter([row for row in rows if row.key.startswith(prefix)])

    rule = SelectionRule("p", "q/r")
    ends = lister(ours, "p/"), lister(theirs, "q/r/")
    found = list(pairs(rule, *ends))
    keys = [pair.key.removeprefix("q/r/") for pair in found]
    assert keys == sorted(ours | theirs, key=str.encode)
    for pair in found:
        name = pair.key.removeprefix("q/r/")
        assert (pair.source is not None) == (name in ours)
        assert (pair.destination is not None) == (name in theirs)
    # The comparison covers exactly the objects of a copy.
    copied = [(row.source.key, row.destination_key) for row in select(rule, *ends)]
    assert copied == [(pair.source.key, pair.key) for pair in found if pair.source]


@given(st.sets(NAMES), st.sets(NAMES))
def test_the_join_with_escaped_keys_finds_every_copy_and_every_extra_object(
    ours: set[str], theirs: set[str]
) -> None:
    """Names that end in a dot, and `.` and `..`, are illegal on Azure."""

    def lister(names: set[str], folder: str) -> Any:
        rows = [ObjectInfo(f"{folder}{name}", 1, "e", 0.0) for name in names]
        rows.sort(key=lambda row: row.key.encode())
        return lambda prefix: iter([row for row in rows if row.key.startswith(prefix)])

    rule = SelectionRule("p", "q/r", on_illegal_key="escape")
    copies = {escape_name("azure", "q/r/", name, 1): name for name in ours | theirs}
    there = {copy for copy, name in copies.items() if name in theirs}
    found = list(
        pairs(
            rule,
            lister(ours, "p/"),
            lister(there, "q/r/"),
            escape_name=partial(escape_name, "azure"),
        )
    )
    names = [copies[pair.key.removeprefix("q/r/")] for pair in found]
    assert sorted(names) == sorted(ours | theirs)
    for name, pair in zip(names, found, strict=True):
        assert (pair.source is not None) == (name in ours)
        assert (pair.destination is not None) == (name in theirs)


def test_globs_are_for_keys_before_their_escape() -> None:
    def lister(*keys: str) -> Any:
        rows = [ObjectInfo(key, 1, "e", 0.0) for key in sorted(keys)]
        return lambda prefix: iter([row for row in rows if row.key.startswith(prefix)])

    escaped = escape_name("azure", "", "a\\b", 1)
    source, destination = lister("a\\b", "c"), lister(escaped, "c", "x\N{CENT SIGN}")
    rule = SelectionRule("", "", include=("a\\*",), on_illegal_key="escape")
    found = list(pairs(rule, source, destination, escape_name=partial(escape_name, "azure")))
    assert [(pair.key, pair.source, pair.destination) for pair in found] == [
        (escaped, next(source("a")), next(destination("a")))
    ]


def test_illegal_keys_that_a_copy_skips_are_not_compared(
    memory: tuple[MemoryStore, MemoryStore],
) -> None:
    source, destination = memory
    for store, folder in ((source, "p"), (destination, "q")):
        store.put(f"{folder}/a", b"1")
    source.put("p/b\\c", b"1")
    end = Location("az://account/out/q/")
    skips = TransferJob(MEMORY_JOB.source, end, on_illegal_key="skip")
    assert verify_job(skips, NONE).objects == 1
    fails = replace(skips, on_illegal_key="fail")
    assert [row.kind for row in verify_job(fails, NONE).differences] == ["missing"]


def test_only_what_the_filters_of_the_copy_select_is_compared(places: tuple[Path, Path]) -> None:
    """The times of copies are those of the copy, so bounds are those of the source."""
    source, destination = places
    for name, age_s in (("a", 10.0), ("b", 5000.0), ("z", 5000.0)):
        os.utime(source / name, (time.time() - age_s,) * 2)
        (destination / name).write_bytes(b"other, and longer")
    ends = Location(f"{source}/"), Location(f"{destination}/")

    def found(**filters: Any) -> list[tuple[str, str]]:
        report = verify_job(TransferJob(*ends, **filters), NONE, with_extra=True)
        assert report.extra == 0
        return kinds(report)

    assert found(older_than="1h") == [("different", "b"), ("different", "z")]
    assert found(newer_than="1h") == [("different", "a")]
    assert found(max_size="1B", newer_than="1h") == [("different", "a")]
    assert found(min_size="1K") == []
    assert found(files_from=["b", "sub/c"]) == [("different", "b")]


def test_a_listed_key_that_the_source_lacks_is_missing(places: tuple[Path, Path]) -> None:
    source, destination = places
    (source / "b").unlink()
    ends = Location(f"{source}/"), Location(f"{destination}/")
    job = TransferJob(*ends, files_from=("a", "b", "nowhere"))
    report = verify_job(job, NONE, with_extra=True)
    assert [(row.kind, row.reason) for row in report.differences] == [
        ("missing", "it is not at the source")
    ] * 2
    assert (report.objects, report.equal, report.extra) == (3, 1, 0)


def test_archived_objects_that_a_copy_skips_are_not_compared() -> None:
    def source(prefix: str) -> Iterator[ObjectInfo]:
        yield ObjectInfo("p/a", 1, "e", 1.0)
        yield ObjectInfo("p/cold", 1, "e", 1.0, archived="it is in Glacier")

    for rule, keys in (("skip", ["q/a"]), ("fail", ["q/a", "q/cold"]), ("read", ["q/a", "q/cold"])):
        found = pairs(
            SelectionRule("p/", "q/", on_archived_object=cast(Any, rule)),
            source,
            lambda _: iter(()),
        )
        assert [pair.key for pair in found] == keys


def test_the_client_asks_for_no_plan_and_no_region(places: tuple[Path, Path]) -> None:
    report = Client().verify(TransferJob(Location(f"{places[0]}/"), Location(f"{places[1]}/")))
    assert report.is_equal
