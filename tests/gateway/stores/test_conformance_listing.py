"""Every store lists alike: order, prefixes, pages, start."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.common.errors import NotFound
from skyplane_gateway.stores.azure import listing as azure_listing
from skyplane_gateway.stores.gcs import listing as gcs_listing
from skyplane_gateway.stores.s3 import listing as s3_listing
from skyplane_orchestration.storage.folder_listing import one_level


def keys(harness: Any, prefix: str = "", start_after: str | None = None) -> list[str]:
    return [info.key for info in harness.shared.list(prefix, start_after=start_after)]


def test_an_empty_bucket_lists_nothing(harness: Any) -> None:
    assert keys(harness) == []
    assert keys(harness, "a/b") == []


def test_a_missing_bucket_is_an_error_not_an_empty_listing(harness: Any) -> None:
    missing = harness.open_missing()
    with pytest.raises(NotFound):
        missing.check()
    if harness.spec.kind != "file":  # A folder that does not exist is an empty prefix.
        with pytest.raises(NotFound):
            list(missing.list(""))


def test_order_is_that_of_utf8_bytes(harness: Any) -> None:
    names = ["a-b", "a/b", "a/b-c", "a/b/c.d", "a.b", "aB", "ab", "Z", "z"]
    names += ["\u00e9", "\uff5a", "\U0001f600"]
    if harness.is_posix:
        names.remove("a/b")
    harness.fill(names)
    assert keys(harness) == sorted(names, key=str.encode)


def test_a_prefix_is_text_and_not_a_folder(harness: Any) -> None:
    harness.fill(["a/x", "a/y/z", "ab", "abc/d", "b"])
    assert keys(harness, "a") == ["a/x", "a/y/z", "ab", "abc/d"]
    assert keys(harness, "a/") == ["a/x", "a/y/z"]
    assert keys(harness, "a/y") == ["a/y/z"]
    assert keys(harness, "ab") == ["ab", "abc/d"]
    assert keys(harness, "abc/d") == ["abc/d"]
    assert keys(harness, "abc/d/") == []


def test_a_listing_starts_after_a_key(harness: Any) -> None:
    names = ["a/x", "a/y/z", "ab", "abc/d", "b"]
    harness.fill(names)
    for start in ("", "a", "a/x", "a/y", "a/y/z", "aa", "ab", "zz"):
        after = [name for name in names if name > start]
        assert keys(harness, "", start) == after
        assert keys(harness, "a", start) == [name for name in after if name.startswith("a")]


def test_a_listing_of_several_pages(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for listing in (azure_listing, gcs_listing, s3_listing):
        monkeypatch.setattr(listing, "_PAGE_KEYS", 10)
    names = [f"p/{number:04d} {'x' * (number % 3)}" for number in range(23)]
    harness.fill(names)
    assert keys(harness, "p/") == names
    assert keys(harness, "p/", names[10]) == names[11:]


def test_listed_objects_have_size_time_and_etag(harness: Any) -> None:
    written = harness.shared.put("k", b"12345")
    (listed,) = harness.shared.list("")
    assert (listed.size_bytes, listed.etag) == (5, written.etag)
    assert abs(listed.last_modified - written.last_modified) < 2
    assert harness.read_range(listed, 0, 5) == b"12345"


def test_one_level_has_objects_and_folders(harness: Any) -> None:
    harness.fill(["a/x", "a/y/z", "ab", "abc/d", "abc/e/f", "b"])

    def level(prefix: str) -> list[str]:
        rows = one_level(harness.shared, prefix)
        return [row if isinstance(row, str) else row.key for row in rows]

    assert level("") == ["a/", "ab", "abc/", "b"]
    assert level("a/") == ["a/x", "a/y/"]
    assert level("a") == ["a/", "ab", "abc/"]
    assert level("abc/d") == ["abc/d"]
    assert level("none/") == []
