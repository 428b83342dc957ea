"""A listing of a place as a digest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.errors import NotFound
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.place_digest import SourceVersion, source_version

NONE = CredentialSources(is_ambient_allowed=False)


def seen(place: str, **more: Any) -> SourceVersion:
    options = {"recursive": True, "include": (), "exclude": (), **more}
    return source_version(Location(place), NONE, **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, body in (("a.csv", b"1"), ("b.csv", b"22"), ("sub/c.txt", b"333")):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return tmp_path / "in"


def test_it_counts_objects_and_bytes(folder: Path) -> None:
    found = seen(f"{folder}/")
    assert (found.objects, found.size_bytes) == (3, 6)
    assert seen(f"{folder}/") == found


def test_a_changed_object_changes_it(folder: Path) -> None:
    before = seen(f"{folder}/")
    (folder / "a.csv").write_bytes(b"2")
    os.utime(folder / "a.csv", (1e9, 1e9))
    after = seen(f"{folder}/")
    assert (after.objects, after.size_bytes) == (before.objects, before.size_bytes)
    assert after.digest != before.digest


def test_objects_that_the_filters_leave_out_do_not_count(folder: Path) -> None:
    before = seen(f"{folder}/", include=("*.csv",), exclude=("b.*",))
    assert (before.objects, before.size_bytes) == (1, 1)
    (folder / "b.csv").unlink()
    (folder / "sub" / "d.txt").write_bytes(b"4")
    assert seen(f"{folder}/", include=("*.csv",), exclude=("b.*",)) == before


def test_one_object(folder: Path) -> None:
    assert seen(f"{folder}/b.csv", recursive=False).size_bytes == 2
    with pytest.raises(NotFound, match="no object"):
        seen(f"{folder}/z.csv", recursive=False)


def test_an_empty_place_has_a_digest_too(tmp_path: Path) -> None:
    found = seen(f"{tmp_path}/")
    assert (found.objects, found.size_bytes, len(found.digest)) == (0, 0, 64)


def test_patterns_are_those_of_transfers(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert seen(f"{folder}/", include=("/sub/",)).objects == 1
    assert seen(f"{folder}/", exclude=("sub/",)).objects == 2
    assert caplog.messages == []
    assert seen(f"{folder}/", exclude=("/c.txt",)).objects == 3
    assert "matches exclude '/c.txt', so nothing is left out" in caplog.text
