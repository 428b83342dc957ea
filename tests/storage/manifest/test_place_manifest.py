"""The manifest of a place for people and programs, and what it finds beside a listing."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.e2e.places import UNAVAILABLE, Place, emulated
from tests.storage.manifest.places import RUN, commit

from skyplane_orchestration import Client
from skyplane_orchestration.errors import ConfigurationInvalid, ManifestUnreadable, NotFound
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage.manifest.place_manifest import PlaceManifest
from skyplane_orchestration.storage.manifest.rows import SCHEMA

MANIFEST = ".skyplane/manifest"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "sub/c"):
        (tmp_path / "dst" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dst" / name).write_bytes(b"1")
    return tmp_path / "dst"


@pytest.fixture
def runs(folder: Path) -> Path:
    """Three commits: a, b and sub/c; another b and d; without a."""
    place = Location(f"{folder}/")
    commit(place, ["a", "b", "sub/c"], run="owner/first")
    (folder / "b").write_bytes(b"22")
    (folder / "d").write_bytes(b"4")
    commit(place, ["b", "d"], version="v2")
    (folder / "a").unlink()
    commit(place, deleted=["a"])
    return folder


def opened(folder: Path) -> PlaceManifest:
    return Client().manifest(Location(str(folder)))


def test_runs_and_the_rows_that_they_left(runs: Path) -> None:
    manifest = opened(runs)
    assert [(one.commit, one.copied, one.deleted) for one in manifest.runs] == [
        (1, 3, 0), (2, 2, 0), (3, 0, 1),
    ]  # fmt: skip
    keys = {name: manifest.table(name)["key"].to_pylist() for name in (1, "2", "owner/first", None)}
    assert keys == {
        1: ["a", "b", "sub/c"],
        "owner/first": ["a", "b", "sub/c"],
        "2": ["a", "b", "d", "sub/c"],
        None: ["b", "d", "sub/c"],
    }
    assert manifest.run(RUN).commit == 3  # The last of its commits.
    assert manifest.table().schema.equals(SCHEMA)
    assert manifest.table(prefix="sub/")["key"].to_pylist() == ["sub/c"]
    assert manifest.dataset().count_rows() == 3


@pytest.mark.parametrize("name", [4, "4", "", "nobody/run"])
def test_a_run_that_it_does_not_know(runs: Path, name: int | str) -> None:
    with pytest.raises(ConfigurationInvalid, match=f"has no run {name!r}; it has 1, 2, 3"):
        opened(runs).table(name)


def test_what_changed_between_two_runs(runs: Path) -> None:
    found = opened(runs).diff(1, 3)
    assert (found.added, found.changed, found.removed) == (("d",), ("b",), ("a",))
    back = opened(runs).diff(3, 1)
    assert (back.added, back.changed, back.removed) == (("a",), ("b",), ("d",))


def test_a_place_without_a_manifest(folder: Path) -> None:
    with pytest.raises(NotFound, match="has no manifest"):
        opened(folder)


def test_all_rows_have_their_object(runs: Path) -> None:
    (runs / "b").chmod(0o600)  # Its inode is another one, and no byte of it.
    report = opened(runs).verify()
    assert report.is_equal
    assert (report.rows, report.same, report.unknown) == (3, 3, ())
    assert report.summary.startswith("3 of 3 rows have their object; 0 missing, 0 changed")
    assert report.to_dict()["signatures"] == {1: "unchecked", 2: "unchecked", 3: "unchecked"}


def test_what_does_not_hold(runs: Path) -> None:
    (runs / "b").unlink()
    before = (runs / "d").stat()
    (runs / "d").write_bytes(b"5")
    os.utime(runs / "d", ns=(before.st_atime_ns, before.st_mtime_ns))
    (runs / "new").write_bytes(b"6")
    report = opened(runs).verify()
    assert (report.missing, report.changed, report.unknown) == (("b",), ("d",), ("new",))
    assert not report.is_equal
    assert report.findings == ["missing: b", "changed: d"]
    assert report.failure(1).endswith("does not hold: missing: b; and 1 more")
    found = report.as_diff()
    assert (found.added, found.changed, found.removed) == (("new",), ("d",), ("b",))


def test_objects_without_a_row_are_no_fault(runs: Path) -> None:
    (runs / "new").write_bytes(b"6")
    assert opened(runs).verify().is_equal


def _damaged(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(body)


@pytest.mark.parametrize("suffix", ["segment", "index"])
@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (Path.unlink, "gone"),
        (_damaged, "damaged"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged"),
    ],
    ids=["gone", "damaged", "longer", "cut"],
)
def test_segments_that_are_damaged(
    runs: Path, suffix: str, harm: Callable[[Path], object], word: str
) -> None:
    manifest = opened(runs)
    name = manifest.runs[-1].segments[-1]
    harm(runs / MANIFEST / f"{name}.{suffix}")
    report = manifest.verify()
    assert [one.partition(": ")[0] for one in report.faults] == [
        f"a segment of the manifest is {word}"
    ]
    assert (report.is_equal, report.rows) == (False, 0)
    with pytest.raises(ManifestUnreadable, match=word):
        report.as_diff()
    if suffix == "segment":
        with pytest.raises(ManifestUnreadable, match=f"is {word}: .*{name}"):
            manifest.table()


def test_a_lost_segment_of_deletes_brings_no_row_back(folder: Path) -> None:
    """A commit that cannot read a segment also leaves out what came before it."""
    place, names = Location(f"{folder}/"), [f"n{number}" for number in range(30)]
    for name in names:
        (folder / name).write_bytes(b"1")
    commit(place, names)
    (folder / "n7").unlink()
    commit(place, deleted=["n7"])
    last = opened(folder).runs[-1].segments
    assert len(last) == 2
    _damaged(folder / MANIFEST / f"{last[-1]}.segment")
    commit(place, ["a"])
    assert opened(folder).verify().is_equal
    assert opened(folder).table()["key"].to_pylist() == ["a"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_an_export_has_all_columns(runs: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"rows{suffix}"
    assert opened(runs).export(str(target), 2, "b") == f"file://{target}"
    if suffix == ".parquet":
        table = pq.read_table(target)
        assert table.schema.equals(SCHEMA)
        (row,) = table.to_pylist()
        assert row["recorded"].timestamp() == 1_700_000_000
        return
    with target.open() as file:
        (row,) = csv.DictReader(file) if suffix == ".csv" else map(json.loads, file)
    assert list(row) == SCHEMA.names
    assert (row["key"], int(row["bytes"]), row["source_version"]) == ("b", 2, "v2")
    assert row["recorded"] == "2023-11-14T22:13:20+00:00"


def test_the_digest_of_what_the_copies_were_made_of(runs: Path) -> None:
    first = opened(runs).source_digest
    assert opened(runs).source_digest == first
    commit(Location(f"{runs}/"), ["d"], version="v3")
    assert opened(runs).source_digest != first


@pytest.fixture(scope="module")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("manifest"), "manifest") as made:
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure", "file"])
def test_all_stores(
    emulators: dict[str, Place], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = emulators[kind]
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    location, store = place.location("dst/", "", ""), place.store()
    for name in ("a", "b", "c"):
        store.put(place.key(f"dst/{name}"), name.encode())
    commit(location, ["a", "b", "c"])
    assert Client().manifest(location).verify().is_equal
    store.delete(place.key("dst/a"))
    store.put(place.key("dst/b"), b"2")
    store.put(place.key("dst/d"), b"d")
    store.close()
    report = Client().manifest(location).verify()
    assert (report.missing, report.changed, report.unknown) == (("a",), ("b",), ("d",))


def test_a_manifest_that_lies_apart(folder: Path, tmp_path: Path) -> None:
    apart = f"{tmp_path}/apart"
    commit(Location(f"{folder}/"), ["a", "b"], manifest_at=apart)
    with pytest.raises(NotFound):
        opened(folder)
    manifest = Client().manifest(Location(str(folder)), manifest_at=apart)
    assert manifest.table()["key"].to_pylist() == ["a", "b"]
    assert manifest.source_digest
    (folder / "a").unlink()
    report = manifest.verify()
    assert (report.missing, report.unknown, report.faults) == (("a",), ("sub/c",), ())
    with pytest.raises(ConfigurationInvalid, match="manifest_at is auto, always, never, or"):
        Client().manifest(Location(str(folder)), manifest_at="somewhere")
