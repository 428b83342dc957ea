"""The key rule as a table. The numbers are those of Skyplane's test cases."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.common.errors import NotFound
from skyplane_gateway.selection.key_mapping import folder_of, map_key

ONE = [
    (1, "foo/a.txt", "foo/a.txt", "bar", "bar"),
    (2, "foo/a.txt", "foo/a.txt", "bar/", "bar/a.txt"),
    (3, "foo/a.txt", "foo/b.txt", "bar", None),
    (4, "foo", "foo/a.txt", "bar", None),
    (13, "a.txt", "a.txt", "", "a.txt"),
    (14, "a.txt", "a.txt", "/", "a.txt"),
    (18, "", "foo/b.txt", "", None),
    (19, "/", "foo/b.txt", "", None),
    (20, "", "foo/b.txt", "bar", None),
    (30, "foo", "foo", "qux", "qux"),
    (31, "foo", "foo", "qux/", "qux/foo"),
    (32, "foo/", "foo/", "qux/", "qux/foo/"),
    (33, "foo/", "foo/", "", "foo/"),
    (34, "foo/", "foo/", "/", "foo/"),
    ("deep marker", "a/b/", "a/b/", "qux/", "qux/b/"),
    ("marker onto a name", "foo/", "foo/", "bar", "bar"),
]
MANY = [
    (6, "foo/", "foo/a.txt", "bar", "bar/a.txt"),
    (7, "foo/", "foo/b.txt", "bar", "bar/b.txt"),
    (9, "foo", "fooc.txt", "bar", None),
    (10, "foo/a.txt", "foo/a.txt", "bar", None),
    (11, "foo/a.txt", "foo/b.txt", "bar/", None),
    (21, "", "foo/bar/baz.txt", "", "foo/bar/baz.txt"),
    (22, "/", "foo/bar/baz.txt", "", "foo/bar/baz.txt"),
    (23, "/", "foo/bar/baz.txt", "/", "foo/bar/baz.txt"),
    (24, "", "foo/bar/baz.txt", "qux", "qux/foo/bar/baz.txt"),
    (25, "", "foo/bar/baz.txt", "qux/", "qux/foo/bar/baz.txt"),
    (26, "/", "foo/bar/baz.txt", "qux", "qux/foo/bar/baz.txt"),
    ("26b", "/", "foo/bar/baz.txt", "qux/", "qux/foo/bar/baz.txt"),
    ("no slash", "foo", "foo/a.txt", "bar", "bar/a.txt"),
    ("double slash", "foo/", "foo//a.txt", "bar/", "bar//a.txt"),
    ("marker", "foo/", "foo/", "bar", "bar/"),
]


@pytest.mark.parametrize(
    ("case", "prefix", "key", "destination", "expected", "recursive"),
    [*((*row, False) for row in ONE), *((*row, True) for row in MANY)],
)
def test_the_key_rule(
    case: object, prefix: str, key: str, destination: str, expected: str | None, recursive: bool
) -> None:
    if expected is None:
        with pytest.raises(NotFound):
            map_key(prefix, key, destination, recursive=recursive)
    else:
        assert map_key(prefix, key, destination, recursive=recursive) == expected


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(prefix=names, destination=names, one=names, other=names)
def test_a_recursive_mapping_keeps_order_and_loses_nothing(
    prefix: str, destination: str, one: str, other: str
) -> None:
    folder = folder_of(prefix)
    mapped = [map_key(prefix, folder + name, destination, recursive=True) for name in (one, other)]
    assert (mapped[0] < mapped[1]) == (one < other)
    assert [key.removeprefix(folder_of(destination)) for key in mapped] == [one, other]
