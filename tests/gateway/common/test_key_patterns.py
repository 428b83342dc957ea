"""What a pattern of keys matches; tests/docs/test_filters_page.py compares it with rclone."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.common.key_patterns import (
    can_match,
    expression,
    literal_start,
    matcher,
    matches_below,
)


def match_of(pattern: str) -> Callable[[str], object]:
    return re.compile(expression(pattern)).match


#: Pattern -> (names that it matches, names that it does not match).
TABLE = {
    "/x": (["x"], ["/x", "a/x", "x/y"]),
    "/x/*": (["x/a", "x/a/b", "x/"], ["/x/a", "x"]),
    "[/]x": (["/x"], ["x", "a/x"]),
    "[/]x/": (["/x/a", "b//x/a"], ["x/a"]),
    "tmp/": (["tmp/", "tmp/a", "a/tmp/b/c", "/tmp/a"], ["tmp", "xtmp/a", "tmpx/a"]),
    "/tmp/": (["tmp/", "tmp/a"], ["tmp", "a/tmp/b", "/tmp/a"]),
    "a/tmp/": (["a/tmp/b", "x/a/tmp/b"], ["tmp/b", "xa/tmp/b"]),
    "a//": (["a//b", "x/a//b"], ["a/b"]),
    "/": (["a", "a/b", "/a"], []),
    "[!/]*": (["a", "a/b"], ["/a"]),
    "a\\b": (["a\\b"], ["ab", "a/b"]),
    " a ": ([" a "], ["a"]),
    "a\n": (["a\n"], ["a"]),
    "a": (["a"], ["a\n"]),
    "a,b": (["a,b"], ["a", "b"]),
    "{a,b}": (["{a,b}"], ["a"]),
    "//x": ([], ["/x", "//x", "x"]),
    "//": ([], ["/", "//", "a"]),
    "": ([], ["", "a"]),
    "[b-a]": ([], ["a", "b", "[b-a]"]),
    "x[b-a]/": ([], ["xa/b"]),
    "(?!)": (["(?!)"], [""]),
}


@pytest.mark.parametrize("pattern", TABLE)
def test_a_pattern_matches_whole_names(pattern: str) -> None:
    matched, others = TABLE[pattern]
    match = match_of(pattern)
    assert [name for name in (*matched, *others) if match(name)] == matched
    assert can_match(pattern) == bool(matched)


NAMES = st.text("ab/*?[]!-.\\ \n", max_size=8)


@given(NAMES.filter(lambda text: text and "/" not in (text[0], text[-1])), NAMES)
def test_other_patterns_are_the_globs_of_earlier_releases(pattern: str, name: str) -> None:
    assert bool(match_of(pattern)(name)) == fnmatchcase(name, pattern)


@given(st.lists(NAMES, max_size=4), NAMES)
def test_several_patterns_match_what_each_matches(patterns: list[str], name: str) -> None:
    match = matcher(patterns)
    assert bool(match and match(name)) == any(match_of(one)(name) for one in patterns)


@given(NAMES, NAMES, NAMES)
def test_what_is_skipped_with_a_folder_has_matched(pattern: str, folder: str, rest: str) -> None:
    match = match_of(pattern)
    if matches_below(pattern) and match(f"{folder}/"):
        assert match(f"{folder}/{rest}")


@pytest.mark.parametrize(
    ("pattern", "start"),
    [
        ("2024/01/*", "2024/01/"),
        ("/2024/01/*", "2024/01/"),
        ("/2024/", "2024/"),
        ("a/b.csv", "a/b.csv"),
        ("logs-?/x", "logs-"),
        ("x[ab]/", ""),  # at any depth
        ("2024/", ""),
        ("/x[ab]", "x"),
        ("*.csv", ""),
        ("/", ""),
        ("", ""),
    ],
)
def test_the_literal_start_of_a_pattern(pattern: str, start: str) -> None:
    assert literal_start(pattern) == start


@given(NAMES, NAMES)
def test_every_match_has_the_literal_start(pattern: str, name: str) -> None:
    assert not match_of(pattern)(name) or name.startswith(literal_start(pattern))
    made = literal_start(pattern) + name
    assert not match_of(pattern)(made) or made.startswith(literal_start(pattern))
