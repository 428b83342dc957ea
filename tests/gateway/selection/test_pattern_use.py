"""Which patterns match no key of the listings that are watched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.selection_rule import SelectionRule


def seen(use: PatternUse, keys: Iterable[str], prefix: str = "in") -> PatternUse:
    """After a listing of a folder with keys."""

    def lister(start: str) -> Iterator[ObjectInfo]:
        return (ObjectInfo(f"{prefix}/{key}", 1, "e", 0.0) for key in keys)

    list(use.watch(lister, prefix)(prefix))
    return use


def use_of(*last: str, looks_below: bool = False, **rule: Any) -> PatternUse:
    return PatternUse(SelectionRule("in", "out/top", **rule), last, looks_below=looks_below)


def test_patterns_without_a_match_are_named_with_their_kind() -> None:
    use = use_of("_DONE", "/last", include=("*.csv", "b*"), exclude=("tmp/", "*.csv"))
    assert seen(use, ["a.csv", "x/_DONE"]).unmatched() == (
        "include 'b*'",
        "exclude 'tmp/'",
        "publish_last '/last'",
    )
    assert seen(use, ["tmp/b"]).unmatched() == ("include 'b*'", "publish_last '/last'")


def test_a_key_that_another_pattern_leaves_out_counts() -> None:
    assert seen(use_of(exclude=("*", "tmp/", "/tmp/a")), ["tmp/a"]).unmatched() == ()


def test_patterns_of_keys_that_come_last_match_destination_keys() -> None:
    assert seen(use_of("top/a", "top/*"), ["a"]).unmatched() == ()


@pytest.mark.parametrize("skipped", ["in/tmp/", "in/tmp/\udcff", "in/x/tmp/"])
def test_what_a_listing_skips_for_a_pattern_is_its_match(skipped: str) -> None:
    use = use_of(exclude=("tmp/", "other/"))
    assert not use.wants(skipped)
    assert use.wants("in/data/")
    assert use.unmatched() == ("exclude 'other/'",)


def test_keys_of_a_list_count_and_others_too() -> None:
    use = use_of(files_from=("a.csv",), include=("a*", "b*"))
    assert use.unmatched() == ("include 'b*'",)


def test_one_object_is_seen_by_its_last_segment() -> None:
    use = use_of(recursive=False, exclude=("a.csv", "x/a.csv"))
    assert seen(use, ["x/a.csv"]).unmatched() == ("exclude 'x/a.csv'",)


@pytest.mark.parametrize(
    ("keys", "below"),
    [
        (["tmp/stale", "tmp/z"], {"tmp": "tmp/stale"}),
        (["x/tmp/stale"], {}),
        (["tmp"], {}),
        (["tmp/stale", "tmp"], {}),
        (["tmp", "tmp/stale"], {}),
        ([], {}),
    ],
)
def test_a_pattern_that_misses_the_folder_it_names(keys: list[str], below: dict[str, str]) -> None:
    use = seen(use_of(exclude=("tmp",), include=("tmp",), looks_below=True), keys)
    assert use.matched_only_below() == below
