"""What only the destination has, by the merge of two listings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.object_filter import Bounds
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.candidates import Lister
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_orchestration.storage.extra_objects import ExtraObjects

names = st.lists(st.text("ab/.", min_size=1, max_size=4), max_size=9, unique=True)


def listing(prefix: str, sizes: dict[str, int]) -> Lister:
    def listed(wanted: str) -> Iterator[ObjectInfo]:
        assert wanted == prefix
        for name in sorted(sizes):
            yield ObjectInfo(prefix + name, sizes[name], "e", 0.0)

    return listed


def folder_listing(prefix: str) -> Iterator[ObjectInfo]:
    assert prefix == "s/"
    for name in ("at-both", "folder", "left-out", "small"):
        yield ObjectInfo(prefix + name, len(name), "e", 0.0, is_folder=name == "folder")


def test_it_tells_the_names_that_copies_will_have() -> None:
    missing: list[str] = []
    rule = SelectionRule("s", "d/e", exclude=("left*",), bounds=Bounds(min_bytes=6))
    there = listing("d/e/", {"at-both": 9, "other": 9})
    found = ExtraObjects(rule, folder_listing, there, missing.append)
    assert ([info.key for info in found], missing) == (["d/e/other"], ["folder/"])


def test_a_file_in_the_place_of_a_folder_of_its_name_is_no_copy() -> None:
    """Azure's mark of a folder has the folder's name, and a file system has no room for both."""
    missing: list[str] = []
    there = listing("d/e/", {"at-both": 9, "folder": 9, "left-out": 9, "small": 9})
    for makes_folders, extras in ((True, ["d/e/folder"]), (False, [])):
        rule = SelectionRule("s", "d/e", makes_folders=makes_folders)
        found = ExtraObjects(rule, folder_listing, there, missing.append)
        assert [info.key for info in found] == extras
    assert missing == ["folder/"]
    rule = SelectionRule("s", "d/e", bounds=Bounds(min_bytes=9), makes_folders=True)
    assert list(ExtraObjects(rule, folder_listing, there)) == [], "a filter protects it"


def extra(rule: SelectionRule, here: dict[str, int], there: dict[str, int]) -> ExtraObjects:
    return ExtraObjects(rule, listing("s/", here), listing("d/e/", there))


@given(names, names, st.integers(0, 3))
@settings(deadline=None)
def test_it_finds_what_a_look_at_each_key_would(
    here: list[str], there: list[str], least: int
) -> None:
    rule = SelectionRule("s", "d/e", exclude=("b*",), bounds=Bounds(min_bytes=least))
    found = extra(rule, {n: len(n) for n in here}, {n: len(n) for n in there})

    def passes(name: str) -> bool:
        return not name.startswith("b") and len(name) >= least

    wanted = [f"d/e/{name}" for name in sorted(there) if passes(name) and name not in here]
    assert [info.key for info in found] == wanted
    assert found.selected == sum(map(passes, here))
    assert found.there == sum(map(passes, there))


def test_filters_protect_what_they_leave_out_at_both_ends() -> None:
    """A small object at the source protects a large one of its name."""
    rule = SelectionRule("s", "d/e", include=("*.csv",), bounds=Bounds(min_bytes=10))
    found = extra(
        rule, {"a.csv": 1, "z.csv": 50}, {"a.csv": 50, "b.csv": 50, "c.csv": 5, "d.txt": 50}
    )
    assert [info.key for info in found] == ["d/e/b.csv"]


def test_objects_of_this_project_and_the_mark_of_the_folder_stay() -> None:
    there = {"": 0, ".skyplane/jobs/k/1": 1, ".skyplane/x": 1, "a/.skyplane/jobs/k/1": 1, "b": 1}
    assert [info.key for info in extra(SelectionRule("s", "d/e"), {}, there)] == ["d/e/b"]


@pytest.mark.parametrize("is_source", [True, False])
def test_a_listing_that_breaks_off_is_an_error(is_source: bool) -> None:
    """Also where it breaks after the last object of the other listing."""

    def broken(prefix: str) -> Iterator[ObjectInfo]:
        yield ObjectInfo(f"{prefix}a", 1, "e", 0.0)
        yield ObjectInfo(f"{prefix}z", 1, "e", 0.0)
        raise StoreUnavailable("503")

    whole = listing("d/e/" if is_source else "s/", {"b": 1})
    ends = (broken, whole) if is_source else (whole, broken)
    with pytest.raises(StoreUnavailable):
        list(ExtraObjects(SelectionRule("s", "d/e"), *ends))
