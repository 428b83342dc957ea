"""Stores write and read class and tags alike, for whole objects and for those of parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.common.kept_properties import CLASSES
from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries

TAGS = (("cost centre", "a/b=7"), ("team", "blue+green"))


def with_option(harness: Any, name: str, value: str) -> None:
    options = tuple(sorted({**dict(harness.spec.options), name: value}.items()))
    harness.spec = replace(harness.spec, options=options)


def read_attributes(store: ObjectStore, key: str, length: int) -> tuple[Any, tuple[str, ...]]:
    with store.read(key, offset=0, length=length, if_match=None) as reader:
        return reader.attributes, reader.not_carried


def test_a_class_is_written_and_read(harness: Any) -> None:
    if harness.spec.kind not in CLASSES:
        return
    if "classes" in harness.lacks:
        pytest.skip("this server has no classes")
    cooler = CLASSES[harness.spec.kind][1]
    harness.write_both(ObjectAttributes(storage_class=cooler))
    for key in ("put", "multi"):
        head = harness.shared.head(key)
        (listed,) = harness.shared.list(key)
        assert head.storage_class == listed.storage_class == cooler
        assert head.not_carried == listed.not_carried == ("storage-class",)


def test_an_option_names_the_class_of_new_objects_but_not_of_our_own(harness: Any) -> None:
    if harness.spec.kind not in CLASSES:
        return
    if "classes" in harness.lacks:
        pytest.skip("this server has no classes")
    cooler = CLASSES[harness.spec.kind][1]
    with_option(harness, "storage-class", cooler)
    harness.write_both(ObjectAttributes())
    harness.shared.put(".skyplane/jobs/1", b"x")
    for key, kept in (("put", cooler), ("multi", cooler), (".skyplane/jobs/1", None)):
        assert harness.shared.head(key).storage_class == kept


def test_tags_are_written_and_read_where_they_are_asked_for(harness: Any) -> None:
    if harness.spec.kind not in ("s3", "azure"):
        return
    harness.write_both(ObjectAttributes(tags=TAGS))
    with_option(harness, "tags", "keep")
    asking = open_without_retries(harness.spec, harness.credentials)
    for key in ("put", "multi"):
        plain, head = harness.shared.head(key).attributes, asking.head(key)
        assert (head.attributes, head.not_carried) == (replace(plain, tags=TAGS), ("tags",))
        for length in (0, 1):
            attributes, lacks = read_attributes(asking, key, length)
            assert (attributes.tags, lacks) == (TAGS, ("tags",))
    asking.put("plain", b"x")
    assert asking.head("plain").not_carried == ()
    asking.close()
