"""Filters by a list of keys, by time and by size."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.object_filter import (
    MAX_LIST_BYTES,
    Bounds,
    ObjectFilter,
    common_start,
    doubtful_lines,
    has_key,
    has_key_below,
    keys_of_lines,
)
from skyplane_gateway.common.objects import ObjectInfo

keys = st.lists(st.text("ab/", min_size=1, max_size=4), max_size=8)


def test_the_lines_of_a_file() -> None:
    text = "# a\n;b\n\n  /c d  \r\nx/y\nx/y\n e#f\n//g/\n   \n"
    assert keys_of_lines(text) == ("c d", "x/y", "x/y", "e#f", "g/")


BOM = "\ufeff"


@pytest.mark.parametrize(
    ("text", "plain", "raw"),
    [
        ("a\nb\n", ("a", "b"), ("a", "b")),
        ("a\r\nb", ("a", "b"), ("a", "b")),
        # Only the end of the line is no part of the key.
        ("a\r\r\n", ("a",), ("a\r",)),
        (f"{BOM}a\n{BOM}b\n", ("a", f"{BOM}b"), ("a", f"{BOM}b")),
        (f"{BOM}# a\nb", ("b",), ("# a", "b")),
        ("#a\n;b\n# c\n", (), ("#a", ";b", "# c")),
        (" a\nb \n\tc\n\u00a0d\n", ("a", "b", "c", "d"), (" a", "b ", "\tc", "\u00a0d")),
        ("/a\n//b\n", ("a", "b"), ("/a", "//b")),
        ("a/\n", ("a/",), ("a/",)),
        ("\n\r\n", (), ()),
        (" \n", (), (" ",)),
        ("a\u2028b\x0bc\x85\n", ("a\u2028b\x0bc",), ("a\u2028b\x0bc\x85",)),
    ],
)
def test_a_raw_list_has_its_lines_as_they_are(
    text: str, plain: tuple[str, ...], raw: tuple[str, ...]
) -> None:
    assert keys_of_lines(text) == plain
    assert keys_of_lines(text, is_raw=True) == raw


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# The tables.\n#\n; Without.\n\na\r\n", []),
        ("a\n#b\n", [2]),
        (f"{BOM}#b\n;c/d\n #e\n", [1, 2, 3]),
        (" a\nb \nc\u00a0\n\td\r\n", [1, 2, 3, 4]),
        ("/a\n//b\n", []),
    ],
)
def test_lines_that_may_be_keys_are_pointed_out(text: str, lines: list[int]) -> None:
    assert list(doubtful_lines(text)) == lines


@given(keys, st.text("ab/", max_size=4))
@settings(deadline=None)
def test_a_list_finds_its_keys(names: list[str], start: str) -> None:
    found = ObjectFilter(tuple(names)).files_from
    assert found is not None
    assert list(found) == sorted(set(names))
    assert has_key(found, start) == (start in names)
    assert has_key_below(found, start) == any(name.startswith(start) for name in names)
    assert all(name.startswith(common_start(found)) for name in names)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
@settings(deadline=None)
def test_windows_that_meet_share_no_object_and_leave_none_out(a: int, b: int, time: int) -> None:
    early, late = sorted((a, b))
    info = ObjectInfo("k", 1, "e", float(time))
    windows = (Bounds(None, early), Bounds(early, late), Bounds(late, None))
    assert sum(window.admit(info) for window in windows) == 1


def test_both_sizes_are_within_their_bounds() -> None:
    bounds = ObjectFilter(min_size="1K", max_size="2K").bounds(0.0)
    sizes = (1023, 1024, 2048, 2049)
    admitted = [bounds.admit(ObjectInfo("k", size, "e", 0.0)) for size in sizes]
    assert admitted == [False, True, True, False]


def test_durations_count_from_the_given_time() -> None:
    bounds = ObjectFilter(newer_than="1h", older_than="1970-01-01T01:00:00Z").bounds(7200.0)
    assert bounds == Bounds(3600.0, 3600.0)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"min_size": "2K", "max_size": "1K"}, "no object has min_size 2K or more"),
        ({"newer_than": "1h", "older_than": "2h"}, "no object is newer_than 1h and older_than 2h"),
        ({"newer_than": "2026-01-02", "older_than": "2026-01-01"}, "no object is newer_than 2026"),
        ({"files_from": ("a", "")}, "files_from has an empty key"),
        ({"files_from": ("a" * (MAX_LIST_BYTES + 1),)}, "files_from has more than 8 MiB"),
        ({"older_than": "soon"}, "older_than must be a duration"),
    ],
)
def test_filters_that_are_refused(fields: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        ObjectFilter(**fields)  # type: ignore[arg-type]
