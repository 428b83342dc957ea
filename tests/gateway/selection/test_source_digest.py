from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.source_digest import SourceDigest

ROWS = (ObjectInfo("a", 1, '"e1"', 10.0), ObjectInfo("b", 2, '"e2"', 20.0))


def digest(rows: Sequence[ObjectInfo]) -> str:
    found = SourceDigest()
    for row in rows:
        found.add(row)
    return found.text


def test_the_same_objects_have_the_same_digest() -> None:
    assert digest(ROWS) == digest(ROWS)
    assert len(digest(ROWS)) == 64
    # The time is in the ETag of stores whose ETags do not follow from the bytes.
    assert digest([replace(row, last_modified=30.0) for row in ROWS]) == digest(ROWS)


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ROWS[:1],
        (replace(ROWS[0], key="c"), ROWS[1]),
        (replace(ROWS[0], size_bytes=2), ROWS[1]),
        (replace(ROWS[0], etag='"e3"'), ROWS[1]),
        (*ROWS, ObjectInfo("c", 0, "", 0.0)),
    ],
    ids=["none", "fewer", "key", "size", "etag", "more"],
)
def test_any_change_has_another_digest(rows: Sequence[ObjectInfo]) -> None:
    assert digest(rows) != digest(ROWS)


def test_a_key_cannot_look_like_two_rows() -> None:
    two = [ObjectInfo("a", 1, "x", 0.0), ObjectInfo("b", 1, "x", 0.0)]
    one = [ObjectInfo('a",1,"x"]\n["b', 1, "x", 0.0)]
    assert digest(two) != digest(one)


def test_a_name_that_is_not_utf_8_has_a_digest() -> None:
    assert digest([ObjectInfo("bad-\udcff", 1, "x", 0.0)])
