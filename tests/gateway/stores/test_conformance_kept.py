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


def write_both(harness: Any, attributes: ObjectAttributes) -> None:
    """The object `put` of one request and the object `multi` of parts."""
    store = harness.shared
    store.put("put", b"x", attributes=attributes)
    upload_id = store.create_upload("multi", attributes)
    parts = harness.put_parts("multi", upload_id, [b"x"])
    store.complete_upload("multi", upload_id, parts, size_bytes=1)


def with_option(harness: Any, name: str, value: str) -> None:
    options = tuple(sorted({**dict(harness.spec.options), name: value}.items()))
    harness.spec = replace(harness.spec, options=options)


def read_attributes(store: ObjectStore, key: str, length: int) -> tuple[Any, tuple[str, ...]]:
    with store.read(key, offset=0, length=length, if_match=None) as reader:
        return reader.attributes, reader.not_carried


@pytest.mark.parametrize("key", ["put", "multi"])
def test_a_class_is_written_and_read(harness: Any, key: str) -> None:
    kind = harness.spec.kind
    if kind not in CLASSES:
        return
    if "classes" in harness.lacks:
        pytest.skip("this server has no classes")
    cooler = CLASSES[kind][1]
    write_both(harness, ObjectAttributes(storage_class=cooler))
    head = harness.shared.head(key)
    (listed,) = harness.shared.list(key)
    assert head.storage_class == listed.storage_class == cooler
    assert head.not_carried == listed.not_carried == ("storage-class",)


@pytest.mark.parametrize("key", ["put", "multi"])
def test_an_option_names_the_class_of_new_objects_but_not_of_our_own(
    harness: Any, key: str
) -> None:
    kind = harness.spec.kind
    if kind not in CLASSES:
        return
    if "classes" in harness.lacks:
        pytest.skip("this server has no classes")
    with_option(harness, "storage-class", CLASSES[kind][1])
    write_both(harness, ObjectAttributes())
    harness.shared.put(".skyplane/jobs/1", b"x")
    assert harness.shared.head(key).storage_class == CLASSES[kind][1]
    assert harness.shared.head(".skyplane/jobs/1").storage_class is None


@pytest.mark.parametrize("key", ["put", "multi"])
def test_tags_are_written_and_read_where_they_are_asked_for(harness: Any, key: str) -> None:
    if harness.spec.kind not in ("s3", "azure"):
        return
    write_both(harness, ObjectAttributes(tags=TAGS))
    with_option(harness, "tags", "keep")
    asking = open_without_retries(harness.spec, harness.credentials)
    attributes = harness.shared.head(key).attributes
    head = asking.head(key)
    assert (head.attributes, head.not_carried) == (replace(attributes, tags=TAGS), ("tags",))
    for length in (0, 1):
        attributes, lacks = read_attributes(asking, key, length)
        assert (attributes.tags, lacks) == (TAGS, ("tags",))
    asking.put("plain", b"x")
    assert asking.head("plain").not_carried == ()
    asking.close()
