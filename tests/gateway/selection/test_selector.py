"""Decisions for each object, by the merge of two listings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import (
    AlreadyExists,
    ConfigurationInvalid,
    InvalidKey,
    NotFound,
    NotRestored,
    StoreUnavailable,
)
from skyplane_gateway.common.job_options import ConflictRule
from skyplane_gateway.common.object_filter import Bounds
from skyplane_gateway.common.objects import (
    IF_ABSENT,
    UNCONDITIONAL,
    ObjectAttributes,
    ObjectInfo,
    Precondition,
)
from skyplane_gateway.selection.difference import ComparisonAnswer, Ends
from skyplane_gateway.selection.questions import ComparisonQuestion
from skyplane_gateway.selection.selection_rule import CONFLICT_RULES, SelectionRule
from skyplane_gateway.selection.selector import Selection, select


def info(key: str, size: int = 1, modified: float = 0.0, crc: int | None = None) -> ObjectInfo:
    return ObjectInfo(key, size, f"etag-of-{key}", modified, crc)


class Listing:
    """A store's listing that counts the rows that were read."""

    def __init__(self, *rows: ObjectInfo | str) -> None:
        infos = [row if isinstance(row, ObjectInfo) else info(row) for row in rows]
        self.rows = sorted(infos, key=lambda row: row.key)
        self.taken = 0
        self.prefixes: list[str] = []

    def __call__(self, prefix: str) -> Iterator[ObjectInfo]:
        self.prefixes.append(prefix)
        for row in self.rows:
            if row.key.startswith(prefix):
                self.taken += 1
                yield row


def run(rule: SelectionRule, source: Listing, destination: Listing, **more: Any) -> list[Selection]:
    return list(select(rule, source, destination, **more))


def test_new_objects_are_written_only_if_still_absent() -> None:
    rows = run(SelectionRule("a", "b"), Listing("a/x", "a/y", "ab"), Listing("b/z", "bb"))
    assert [(row.source.key, row.destination_key, row.action) for row in rows] == [
        ("a/x", "b/x", "copy"),
        ("a/y", "b/y", "copy"),
    ]
    assert all(row.precondition == IF_ABSENT and row.destination is None for row in rows)


@pytest.mark.parametrize(
    ("conflict", "source", "destination", "action"),
    [
        ("fail", info("a/k"), info("b/k"), "refuse"),
        ("skip", info("a/k", 9, 9.0), info("b/k"), "skip"),
        ("replace", info("a/k"), info("b/k"), "copy"),
        ("replace-if-newer", info("a/k", 1, 2.0), info("b/k", 1, 1.0), "copy"),
        ("replace-if-newer", info("a/k", 1, 1.0), info("b/k", 1, 1.0), "skip"),
        ("replace-if-newer", info("a/k", 2, 1.0), info("b/k", 1, 1.5), "copy"),
        ("replace-if-newer", info("a/k", 2, 1.0), info("b/k", 1, 2.0), "skip"),
        ("replace-if-newer", info("a/k", 1, 2.0, 7), info("b/k", 1, 1.0, 7), "skip"),
        ("replace-if-size-differs", info("a/k", 1, 9.0, 7), info("b/k", 1, 1.0, 8), "skip"),
        ("replace-if-size-differs", info("a/k", 2, 1.0), info("b/k", 1, 1.0), "copy"),
        ("replace-if-checksum-differs", info("a/k", 2, 1.0, 7), info("b/k", 1, 1.0), "copy"),
        ("replace-if-checksum-differs", info("a/k", 1, 1.0, 7), info("b/k", 1, 2.0, 8), "copy"),
        ("replace-if-checksum-differs", info("a/k", 1, 9.0, 7), info("b/k", 1, 2.0, 7), "skip"),
        ("replace-if-different", info("a/k", 2, 1.0), info("b/k", 1, 5.0), "copy"),
        ("replace-if-different", info("a/k", 1, 200.0), info("b/k", 1, 1.0), "copy"),
        ("replace-if-different", info("a/k", 1, 1.0), info("b/k", 1, 200.0), "skip"),
        ("replace-if-different", info("a/k", 1, 1.0), info("b/k", 1, 100.0), "copy"),
        ("replace-if-different", info("a/k", 1, 1.0, 7), info("b/k", 1, 2.0, 8), "copy"),
        ("replace-if-different", info("a/k", 1, 3.0, 7), info("b/k", 1, 2.0, 7), "skip"),
        ("replace-if-different", info("a/k", 1, 1.0, 7), info("b/k", 1, 200.0), "skip"),
    ],
)
def test_conflict_rules(
    conflict: ConflictRule, source: ObjectInfo, destination: ObjectInfo, action: str
) -> None:
    (row,) = run(SelectionRule("a", "b", conflict=conflict), Listing(source), Listing(destination))
    assert row.action == action
    assert row.reason
    # The reason of a skip names the rule, since a report row shows only the reason.
    assert (f"(conflict rule: {conflict})" in row.reason) == (action != "copy")
    assert row.destination == destination
    fence = Precondition(if_match="etag-of-b/k") if action == "copy" else UNCONDITIONAL
    assert row.precondition == fence


def test_an_unknown_conflict_rule_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="overwrite"):
        SelectionRule("a", "b", conflict="overwrite")  # type: ignore[arg-type]


def test_filters_look_at_the_key_below_the_folder() -> None:
    source = Listing("a/x.csv", "a/d/y.csv", "a/d/tmp/z.csv", "a/x.txt")
    rule = SelectionRule("a", "b", include=("*.csv",), exclude=("*/tmp/*",))
    assert [row.source.key for row in run(rule, source, Listing())] == ["a/d/y.csv", "a/x.csv"]
    rule = SelectionRule("a", "b", include=("a/*",))
    assert run(rule, source, Listing()) == []


def test_journals_are_not_copied() -> None:
    source = Listing("a/.skyplane/jobs/k/1", "a/.skyplane/other", "a/x")
    keys = [row.source.key for row in run(SelectionRule("a", ""), source, Listing())]
    assert keys == ["a/.skyplane/other", "a/x"]
    source = Listing(".skyplane/jobs/k/1")
    assert run(SelectionRule("", "b"), source, Listing()) == []


def test_a_destination_among_journals_is_refused() -> None:
    rule = SelectionRule("a", "b/.skyplane/jobs")
    (row,) = run(rule, Listing("a/x"), Listing("b/.skyplane/jobs/x"))
    assert (row.action, row.destination_key) == ("refuse", "b/.skyplane/jobs/x")
    assert "choose another destination" in row.reason


def test_the_marker_of_the_folder_itself() -> None:
    (row,) = run(SelectionRule("a/", ""), Listing("a/"), Listing())
    assert row.action == "skip"
    (row,) = run(SelectionRule("a/", "b"), Listing("a/"), Listing())
    assert (row.action, row.destination_key) == ("copy", "b/")


def test_a_folder_at_a_file_system_is_asked_for() -> None:
    """No listing of files has folders."""

    def ask(asked: Sequence[ComparisonQuestion]) -> list[ComparisonAnswer]:
        names = [one.destination.key for one in asked]
        assert names == ["b/made/", "b/new/"]
        return [ComparisonAnswer(destination=asked[0].destination), ComparisonAnswer()]

    marks = Listing(info("a/full/"), info("a/made/", 0), info("a/new/", 0))
    rule = SelectionRule("a/", "b", conflict="replace-if-size-differs")
    ends = Ends("s3", "file")
    rows = run(rule, marks, Listing(), ask=ask, ends=lambda: ends)
    assert [row.action for row in rows] == ["copy", "skip", "copy"]


@pytest.mark.parametrize("makes_folders", [True, False])
def test_an_object_that_stands_for_a_folder_becomes_one_at_a_file_system(
    makes_folders: bool,
) -> None:
    """In the place of a file there could be no folder for the next objects."""
    marks = [replace(info(f"in/{key}", 0), is_folder=True) for key in ("a", "a/deep", "b/")]
    source = Listing(marks[0], "in/a-file", marks[1], "in/a/deep/x", marks[2])
    rule = SelectionRule("in/", "out/", makes_folders=makes_folders)
    rows = run(rule, source, Listing("out/a-file"), check_key=None)
    slash = "/" if makes_folders else ""
    assert [row.destination_key for row in rows] == [
        f"out/a{slash}",
        "out/a-file",
        f"out/a/deep{slash}",
        "out/a/deep/x",
        "out/b/",
    ]
    assert [row.destination is not None for row in rows] == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("prefix", "target", "key"),
    [("a/k", "b", "b"), ("a/k", "b/", "b/k"), ("a/k", "", "k"), ("a/k", "/", "k")],
)
def test_one_object_goes_where_the_key_rule_says(prefix: str, target: str, key: str) -> None:
    rule = SelectionRule(prefix, target, recursive=False)
    (row,) = run(rule, Listing("a/j", "a/k", "a/k2", "z"), Listing("a", "b0"))
    assert (row.source.key, row.destination_key, row.destination) == (prefix, key, None)
    (row,) = run(rule, Listing("a/j", "a/k", "a/k2", "z"), Listing(key, key + "0"))
    assert row.destination is not None
    assert row.destination.key == key
    assert row.precondition == Precondition(if_match=f"etag-of-{key}")


@pytest.mark.parametrize(
    ("prefix", "says"),
    [
        ("a", "the objects below 'a/', copy recursively"),
        ("a/", "the objects below 'a/', copy recursively"),
        ("a/none", "no object 'a/none' at the source; check its name"),
        ("", "whole bucket, copy recursively"),
        ("/", "whole bucket, copy recursively"),
    ],
)
def test_one_object_that_is_not_there(prefix: str, says: str) -> None:
    with pytest.raises(NotFound, match=says):
        run(SelectionRule(prefix, "b", recursive=False), Listing("a/k", "ab"), Listing())


@pytest.mark.parametrize(
    ("include", "exclude", "taken"),
    [
        (("*.csv",), (), ["a.csv", "x/a.csv", "x/y/a.csv"]),
        (("a.csv",), (), ["a.csv"]),
        (("a.csv", "*/a.csv"), (), ["a.csv", "x/a.csv", "x/y/a.csv"]),
        (("x/*.csv",), ("x/*/*",), ["x/a.csv"]),
        (("x/*",), (), ["x/a.csv", "x/y/a.csv"]),
        (("x?a.csv",), (), ["x/a.csv"]),
        (("[!a]*",), (), ["x/a.csv", "x/y/a.csv"]),
        (("/x/*",), (), ["x/a.csv", "x/y/a.csv"]),
        (("[/]x/*",), (), []),
        (("y/",), (), ["x/y/a.csv"]),
        (("/y/",), (), []),
        (("{a,b}.csv",), (), []),
        (("A.csv",), (), []),
        ((), ("*.csv",), []),
    ],
)
def test_globs_match_as_documented(
    include: tuple[str, ...], exclude: tuple[str, ...], taken: list[str]
) -> None:
    rule = SelectionRule("in/", "", include=include, exclude=exclude)
    assert [key for key in ("a.csv", "x/a.csv", "x/y/a.csv") if rule.matches(key)] == taken


def test_filters_apply_to_one_object_too() -> None:
    rule = SelectionRule("a/k.csv", "b/", recursive=False, exclude=("k.*",))
    assert run(rule, Listing("a/k.csv"), Listing()) == []


def test_listings_are_read_in_step_and_not_held() -> None:
    source = Listing(*(f"a/{number:05d}" for number in range(1000)))
    destination = Listing(*(f"b/{number:05d}" for number in range(0, 1000, 2)))
    rows = list(islice(select(SelectionRule("a", "b"), source, destination), 100))
    assert [row.destination is not None for row in rows] == [True, False] * 50
    assert source.taken == 100
    assert destination.taken <= 51


def test_no_listing_starts_before_the_first_row() -> None:
    source, destination = Listing("a/x"), Listing()
    rows = select(SelectionRule("a", "b"), source, destination)
    assert source.prefixes == destination.prefixes == []
    list(rows)
    assert (source.prefixes, destination.prefixes) == (["a/"], ["b/"])


def test_a_failed_listing_is_an_error() -> None:
    def broken(prefix: str) -> Iterator[ObjectInfo]:
        yield info("a/x")
        raise StoreUnavailable("gone")

    rows = select(SelectionRule("a", "b"), broken, Listing())
    assert next(rows).source.key == "a/x"
    with pytest.raises(StoreUnavailable):
        next(rows)


keys = st.sets(st.text("ab/-.", min_size=1, max_size=4), max_size=12)


@given(at_source=keys, at_destination=keys, conflict=st.sampled_from(CONFLICT_RULES))
def test_the_merge_agrees_with_a_dictionary(
    at_source: set[str], at_destination: set[str], conflict: ConflictRule
) -> None:
    source = Listing(*(f"s/{key}" for key in at_source))
    destination = Listing(*(f"d/{key}" for key in at_destination), "c/x", "e/x")
    rows = run(SelectionRule("s", "d", conflict=conflict), source, destination)
    assert [row.destination_key for row in rows] == [f"d/{key}" for key in sorted(at_source)]
    for row in rows:
        known = row.destination_key.removeprefix("d/") in at_destination
        assert (row.destination is not None) == known
        if row.action == "copy":
            assert row.precondition.if_absent is not known
            assert (row.precondition.if_match is not None) == known


def test_bounds_apply_to_a_prefix_and_to_one_object() -> None:
    source = Listing(info("a/k", 5), info("a/l", 15), info("a/m", 25))
    rule = SelectionRule("a", "b", bounds=Bounds(min_bytes=10, max_bytes=20))
    assert [row.source.key for row in run(rule, source, Listing())] == ["a/l"]
    one = SelectionRule("a/k", "b", recursive=False, bounds=Bounds(min_bytes=10))
    assert run(one, source, Listing()) == []


def test_a_key_of_the_list_that_is_not_at_the_source_is_missing() -> None:
    """Also where the destination has one of that name: nothing may replace it."""
    rule = SelectionRule("a", "b", files_from=("d/x", "d/y", "d/z"), exclude=("*z",))
    source = Listing("a/d/w", info("a/d/y", 9), "a/d/z", "a/e")
    rows = run(rule, source, Listing("b/d/x"))
    assert [(row.destination_key, row.action, row.source.size_bytes) for row in rows] == [
        ("b/d/x", "missing", 0),
        ("b/d/y", "copy", 9),
    ]
    assert "'a/d/x' is in the list of keys, but not at the source" in rows[0].reason
    assert (rows[0].destination, rows[0].precondition) == (None, UNCONDITIONAL)
    # Both listings begin at what the keys have in common.
    assert source.prefixes == ["a/d/"]


def test_a_listed_key_outside_the_bounds_is_not_missing() -> None:
    rule = SelectionRule("a", "b", files_from=("x",), bounds=Bounds(min_bytes=10))
    assert run(rule, Listing("a/x"), Listing()) == []
    assert run(SelectionRule("a", "b", files_from=()), Listing("a/x"), Listing()) == []


folders = st.lists(st.text("ab/.", min_size=1, max_size=4), max_size=9, unique=True)


@given(folders, folders, folders)
@settings(deadline=None)
def test_a_list_of_keys_chooses_as_a_look_at_each_key_would(
    here: list[str], there: list[str], wanted: list[str]
) -> None:
    rule = SelectionRule("s", "d", files_from=tuple(sorted(wanted)))
    source, destination = (Listing(*(f"{end}/{key}" for key in keys)) for end, keys in
                           (("s", here), ("d", there)))  # fmt: skip
    rows = run(rule, source, destination)
    assert [row.destination_key for row in rows] == [f"d/{key}" for key in sorted(wanted)]
    for row in rows:
        key = row.source.key.removeprefix("s/")
        assert (row.action == "missing") == (key not in here)
        assert (row.destination is not None) == (key in here and key in there)


def test_folders_without_a_listed_key_are_not_wanted() -> None:
    rule = SelectionRule("in", "", files_from=("a/b/c",))
    assert [rule.wants(f"in/{key}") for key in ("a/", "a/b/", "a/c/", "a/b/c")] == [
        True,
        True,
        False,
        True,
    ]


def odd_name(folder: str, name: str, size_bytes: int) -> str:
    """Stands for the escape of a store that cannot hold a `b`; it sorts after all letters."""
    assert folder == "d/"
    return name.replace("b", "~1")


@given(folders, folders)
@settings(deadline=None)
def test_escaped_keys_find_their_objects_out_of_order(here: list[str], there: list[str]) -> None:
    rule = SelectionRule("s", "d", on_illegal_key="escape")
    source = Listing(*(f"s/{key}" for key in here))
    destination = Listing(*(f"d/{odd_name('d/', key, 0)}" for key in there))
    rows = run(rule, source, destination, escape_name=odd_name)
    assert [row.source.key.removeprefix("s/") for row in rows] == sorted(here)
    for row in rows:
        key = row.source.key.removeprefix("s/")
        assert row.destination_key == f"d/{odd_name('d/', key, 0)}"
        assert row.is_escaped == ("b" in key)
        assert (row.destination is not None) == (key in there)


def test_one_object_keeps_a_name_that_its_user_chose() -> None:
    for target, key in (("d/", "d/a~1"), ("d/b", "d/b")):
        rule = SelectionRule("s/ab", target, recursive=False, on_illegal_key="escape")
        (row,) = run(rule, Listing("s/ab"), Listing(), escape_name=odd_name)
        assert row.destination_key == key


@pytest.mark.parametrize(("rule", "action"), [("fail", "refuse"), ("skip", "skip")])
def test_illegal_keys_that_are_not_escaped(rule: Any, action: str) -> None:
    def check(key: str, size_bytes: int) -> None:
        if "//" in key:
            raise InvalidKey(f"{key} is not possible")

    chosen = SelectionRule("a", "b", on_illegal_key=rule)
    rows = run(chosen, Listing("a//x", "a/y"), Listing(), check_key=check, escape_name=odd_name)
    assert [row.destination_key for row in rows] == ["b//x", "b/y"]
    assert [row.action for row in rows] == [action, "copy"]
    assert ("(rule for illegal keys: skip)" in rows[0].reason) == (rule == "skip")
    assert "is not possible" in rows[0].reason
    assert [row.refusal for row in rows] == [InvalidKey, None]


@pytest.mark.parametrize(("rule", "action"), [("fail", "refuse"), ("skip", "skip")])
def test_archived_objects_that_would_be_copied(rule: Any, action: str) -> None:
    """Equal objects need no read, so nothing is said about their class."""
    cold = [replace(info(f"a/{name}", modified=1.0), archived="thaw it") for name in "knz"]
    there = Listing(info("b/k", modified=200.0), info("b/n", size=9))
    chosen = SelectionRule("a", "b", conflict="replace-if-different", on_archived_object=rule)
    rows = run(chosen, Listing(*cold, "a/plain"), there)
    assert [row.action for row in rows] == ["skip", action, "copy", action]
    assert [row.refusal for row in rows] == [None, NotRestored, None, NotRestored]
    assert rows[3].reason == f"thaw it (rule for archived objects: {rule})"
    assert rows[3].precondition == UNCONDITIONAL
    kept = run(replace(chosen, conflict="fail"), Listing(*cold), there)
    assert [row.refusal for row in kept] == [AlreadyExists, AlreadyExists, NotRestored]


def test_archived_objects_are_read_on_request() -> None:
    cold = replace(info("a/k"), archived="thaw it")
    (row,) = run(SelectionRule("a", "b", on_archived_object="read"), Listing(cold), Listing())
    assert (row.action, row.refusal, row.precondition) == ("copy", None, IF_ABSENT)


@pytest.mark.parametrize(
    ("conflict", "size", "own", "action", "asked"),
    [
        ("replace-if-newer", 1, 10.0, "skip", ["p/k"]),
        ("replace-if-newer", 1, 10.0005, "skip", ["p/k"]),
        ("replace-if-newer", 1, 11.0, "copy", ["p/k"]),
        ("replace-if-newer", 1, None, "copy", ["p/k"]),
        ("replace-if-newer", 2, 5.0, "skip", ["p/k"]),
        ("replace-if-different", 1, 10.0, "skip", ["p/k"]),
        ("replace-if-different", 1, 9.0, "copy", ["p/k"]),
        ("replace-if-different", 2, 10.0, "copy", []),
        ("replace", 1, 10.0, "copy", []),
        ("skip", 1, 10.0, "skip", []),
    ],
)
def test_the_time_in_the_metadata_decides_where_the_listing_says_another(
    conflict: Any, size: int, own: float | None, action: str, asked: list[str]
) -> None:
    keys: list[str] = []

    def ask(wanted: Any) -> list[ComparisonAnswer]:
        keys.extend(one.source.key for one in wanted)
        assert {one.kind for one in wanted} == {"source"}
        mtime = () if own is None else (("mtime", f"{own:.6f}"),)
        attributes = ObjectAttributes(metadata=mtime)
        return [
            ComparisonAnswer(source=replace(one.source, attributes=attributes)) for one in wanted
        ]

    rule = SelectionRule("p/", "q/", conflict=conflict)
    rows = Listing(info("p/k", size=size, modified=20.0), info("p/old", modified=10.0), "p/new")
    there = Listing(info("q/k", modified=10.0), info("q/old", modified=10.0))
    made = run(rule, rows, there, ask=ask, ends=lambda: Ends("s3", "file"))
    found = {row.source.key: row.action for row in made}
    assert (found["p/k"], keys) == (action, asked)
    assert found["p/old"] == ("copy" if conflict == "replace" else "skip")
    assert found["p/new"] == "copy"


# -- a listing no longer than the include patterns need

_GLOBS = st.text("ab/*?[]", max_size=5)
_NAMES = st.text("ab/", min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("include", "prefix"),
    [
        (("2024/01/*",), "in/2024/01/"),
        (("/2024/01/", "2024/02/*.csv"), "in/2024/0"),
        (("2024/01/*", "*.csv"), "in/"),
        (("2024/",), "in/"),
        ((), "in/"),
    ],
)
def test_a_literal_folder_narrows_both_listings(include: tuple[str, ...], prefix: str) -> None:
    rule = SelectionRule("in/", "out/", include=include)
    ours, theirs = Listing("in/2024/01/a.csv", "in/x"), Listing("out/2024/01/a.csv")
    assert [row.source.key for row in select(rule, ours, theirs)][:1] == ["in/2024/01/a.csv"]
    assert set(ours.prefixes) == {prefix}
    assert set(theirs.prefixes) <= {prefix.replace("in/", "out/")}


class _Whole(SelectionRule):
    """The rule whose listings are those of whole folders."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scope", "")


@given(
    st.lists(_GLOBS, max_size=3),
    st.lists(_GLOBS, max_size=2),
    st.sets(_NAMES),
    st.sets(_NAMES),
    st.sampled_from(CONFLICT_RULES),
)
@settings(max_examples=300, deadline=None)
def test_the_narrow_listing_selects_what_the_whole_one_does(
    include: list[str],
    exclude: list[str],
    here: set[str],
    there: set[str],
    conflict: ConflictRule,
) -> None:
    def selected(kind: type[SelectionRule]) -> list[Selection]:
        rule = kind("in", "out", include=tuple(include), exclude=tuple(exclude), conflict=conflict)
        ours, theirs = (
            Listing(*(f"{end}/{name}" for name in names))
            for end, names in (("in", here), ("out", there))
        )
        return list(select(rule, ours, theirs))

    assert selected(SelectionRule) == selected(_Whole)
