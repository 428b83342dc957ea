"""Objects that are published last."""

from __future__ import annotations

import pytest

from skyplane_gateway.selection import is_published_last


@pytest.mark.parametrize(
    "key",
    [
        "_SUCCESS",
        "table/day=1/_SUCCESS",
        "_delta_log/00000000000000000000.json",
        "lake/t/_delta_log/_last_checkpoint",
        "lake/t/metadata/00001-abc.metadata.json",
        "lake/t/metadata/version-hint.text",
    ],
)
def test_signs_of_completeness_are_published_last(key: str) -> None:
    assert is_published_last(key)


@pytest.mark.parametrize(
    "key",
    [
        "table/_SUCCESS.bak",
        "table/not_SUCCESS",
        "my_delta_log/x",
        "lake/t/data/part-0.parquet",
        "lake/t/metadata/snap-1.avro",
        "metadata/readme.txt",
    ],
)
def test_other_objects_are_not_published_last(key: str) -> None:
    assert not is_published_last(key)


def test_patterns_are_added_to_the_defaults() -> None:
    assert is_published_last("out/index.html", ("index.html",))
    assert is_published_last("out/index.html", ("out/*.html",))
    assert not is_published_last("out/index.html", ("*.json",))
