"""Objects that are published last."""

from __future__ import annotations

import pytest

from skyplane_gateway.selection.publish_order import is_published_last


@pytest.mark.parametrize(
    ("key", "is_last"),
    [
        ("_SUCCESS", True),
        ("table/day=1/_SUCCESS", True),
        ("_delta_log/00000000000000000000.json", True),
        ("lake/t/_delta_log/_last_checkpoint", True),
        ("lake/t/metadata/00001-abc.metadata.json", True),
        ("lake/t/metadata/version-hint.text", True),
        ("table/_SUCCESS.bak", False),
        ("table/not_SUCCESS", False),
        ("my_delta_log/x", False),
        ("lake/t/data/part-0.parquet", False),
        ("lake/t/metadata/snap-1.avro", False),
        ("metadata/readme.txt", False),
    ],
)
def test_signs_of_completeness_alone_are_published_last(key: str, is_last: bool) -> None:
    assert is_published_last(key) == is_last


def test_patterns_are_added_to_the_defaults() -> None:
    assert is_published_last("out/index.html", ("index.html",))
    assert is_published_last("out/index.html", ("out/*.html",))
    assert not is_published_last("out/index.html", ("*.json",))


@pytest.mark.parametrize(
    ("key", "pattern", "is_last"),
    [
        ("out/day/_READY", "/_READY", False),
        ("out/_READY", "/_READY", True),
        ("out/day/_READY", "/day/_READY", True),
        ("out/marks/a", "marks/", True),
        ("out/x/marks/a", "/marks/", False),
        ("out/marks", "marks/", False),
    ],
)
def test_a_slash_at_an_end_of_a_pattern_is_the_folder(
    key: str, pattern: str, is_last: bool
) -> None:
    assert is_published_last(key, (pattern,), "out") == is_last
