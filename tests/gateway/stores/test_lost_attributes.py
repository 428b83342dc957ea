"""What a file does not keep of an object."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.content_types import lost_attributes

#: Attributes that other names report: tags and class, see `kept_of`.
REPORTED_ELSEWHERE = {"tags", "storage_class"}
HEADERS = ("content_encoding", "content_language", "content_disposition", "cache_control")


MTIME = ("mtime", "1700000000.5")


@pytest.mark.parametrize(
    ("key", "attributes", "names"),
    [
        # A type that only says what the name says is no loss.
        ("x/a.csv", {"content_type": None}, ()),
        ("x/a.csv", {"content_type": "text/csv"}, ()),
        ("x/a.csv", {"content_type": "Text/CSV"}, ()),
        ("x/a.csv", {"content_type": "application/octet-stream"}, ()),
        ("x/a.csv", {"content_type": "binary/octet-stream"}, ()),
        ("x/a", {"content_type": "binary/octet-stream"}, ()),
        ("x/a.csv.gz", {"content_type": "text/csv"}, ()),
        # A folder is made of it.
        ("x/", {"content_type": "application/x-directory"}, ()),
        ("x/a.csv", {"content_type": "text/html"}, ("content-type",)),
        ("x/a", {"content_type": "text/csv"}, ("content-type",)),
        ("x/a.csv", {"content_type": "text/csv; charset=utf-16"}, ("content-type",)),
        ("x/csv", {"content_type": "text/csv"}, ("content-type",)),
        # The file gets this time.
        ("x", {"metadata": (MTIME,)}, ()),
        ("x", {"metadata": (("mtime", "-3"),)}, ()),
        ("x", {"metadata": (("mtime", "yesterday"),)}, ("user-metadata",)),
        ("x", {"metadata": (MTIME, ("owner", "x"))}, ("user-metadata",)),
        ("x", {"metadata": (("owner", ""),)}, ("user-metadata",)),
        # A folder keeps the mark of one.
        ("a/", {"metadata": (("hdi_isfolder", "true"),)}, ()),
        ("a", {"metadata": (("hdi_isfolder", "true"),)}, ("user-metadata",)),
        *(("x", {name: "x"}, (name.replace("_", "-"),)) for name in HEADERS),
    ],
)
def test_what_a_file_loses(key: str, attributes: dict[str, Any], names: tuple[str, ...]) -> None:
    assert lost_attributes(ObjectAttributes(**attributes), key) == names


def test_no_attribute_is_left_out() -> None:
    """A new attribute is lost, too."""
    texts = {field.name: "x" for field in fields(ObjectAttributes)}
    given: dict[str, Any] = {**texts, "metadata": (("a", "b"),), "tags": ()}
    found = lost_attributes(ObjectAttributes(**given), "k")
    assert len(found) == len(texts) - len(REPORTED_ELSEWHERE)
