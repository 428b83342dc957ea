"""What a file does not keep of an object."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.content_types import lost_attributes

#: Attributes that other names report: tags and class, see `kept_of`.
REPORTED_ELSEWHERE = {"tags", "storage_class"}


def lost(key: str = "x/a.csv", /, **attributes: Any) -> tuple[str, ...]:
    return lost_attributes(ObjectAttributes(**attributes), key)


@pytest.mark.parametrize(
    ("key", "content_type"),
    [
        ("x/a.csv", None),
        ("x/a.csv", "text/csv"),
        ("x/a.csv", "Text/CSV"),
        ("x/a.csv", "application/octet-stream"),
        ("x/a.csv", "binary/octet-stream"),
        ("x/a", "binary/octet-stream"),
        ("x/a.csv.gz", "text/csv"),
        # A folder is made of it.
        ("x/", "application/x-directory"),
    ],
)
def test_a_type_that_only_says_what_the_name_says_is_no_loss(
    key: str, content_type: str | None
) -> None:
    assert lost(key, content_type=content_type) == ()


@pytest.mark.parametrize(
    ("key", "content_type"),
    [
        ("x/a.csv", "text/html"),
        ("x/a", "text/csv"),
        ("x/a.csv", "text/csv; charset=utf-16"),
        ("x/csv", "text/csv"),
    ],
)
def test_a_type_of_its_own_is_lost(key: str, content_type: str) -> None:
    assert lost(key, content_type=content_type) == ("content-type",)


@pytest.mark.parametrize(
    "name", ["content_encoding", "content_language", "content_disposition", "cache_control"]
)
def test_each_header_is_lost(name: str) -> None:
    assert lost(**{name: "x"}) == (name.replace("_", "-"),)
    assert lost(**{name: None}) == ()


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ((), ()),
        # The file gets this time.
        ((("mtime", "1700000000.5"),), ()),
        ((("mtime", "-3"),), ()),
        ((("mtime", "yesterday"),), ("user-metadata",)),
        ((("mtime", "1700000000"), ("owner", "x")), ("user-metadata",)),
        ((("owner", ""),), ("user-metadata",)),
    ],
)
def test_user_metadata_other_than_the_time_is_lost(
    metadata: tuple[tuple[str, str], ...], names: tuple[str, ...]
) -> None:
    assert lost(metadata=metadata) == names


def test_no_attribute_is_left_out() -> None:
    """A new attribute is lost, too."""
    texts = {field.name: "x" for field in fields(ObjectAttributes)}
    found = lost("k", **{**texts, "metadata": (("a", "b"),), "tags": ()})
    assert len(found) == len(texts) - len(REPORTED_ELSEWHERE)


def test_a_folder_keeps_the_mark_of_one() -> None:
    mark = ObjectAttributes(metadata=(("hdi_isfolder", "true"),))
    assert lost_attributes(mark, "a/") == ()
    assert lost_attributes(mark, "a") == ("user-metadata",)
