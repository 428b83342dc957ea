"""Stores report the metadata that a copy does not keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.gateway.stores.scripted import CREDENTIALS, s3_client

from skyplane_gateway.common.errors import NotRestored
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries

Put = Callable[..., None]


@pytest.fixture
def bucket(moto_url: str) -> Iterator[tuple[ObjectStore, Put]]:
    """A store, and a function that puts objects with metadata that only S3's API sets."""
    client = s3_client(moto_url)
    client.create_bucket(Bucket="bucket")

    def put(key: str, **more: Any) -> None:
        client.put_object(Bucket="bucket", Key=key, Body=b"abc", **more)

    store = open_without_retries(StoreSpec("s3", "bucket", moto_url, "us-east-1"), CREDENTIALS)
    yield store, put
    store.close()
    client.close()


def not_carried(store: ObjectStore, key: str) -> tuple[tuple[str, ...], ...]:
    """The `not_carried` of a listing, a head, a read and a read of no bytes."""
    (listed,) = store.list(key)
    answers = [listed.not_carried, store.head(key).not_carried]
    for length in (3, 0):
        with store.read(key, offset=0, length=length, if_match=listed.etag) as reader:
            answers.append(reader.not_carried)
    return tuple(answers)


def test_s3_names_metadata_that_a_copy_loses_without_another_request(
    bucket: tuple[ObjectStore, Put],
) -> None:
    store, put = bucket
    put("plain", ContentType="text/csv", Metadata={"a": "b"})
    put("class", StorageClass="STANDARD_IA")
    put("tagged", Tagging="team=blue&cost=7")
    put("sends-on", WebsiteRedirectLocation="/elsewhere")
    assert not_carried(store, "plain") == ((), (), (), ())
    assert not_carried(store, "class") == (("storage-class",),) * 4
    listed, _, read, _ = not_carried(store, "tagged")
    assert (listed, read) == ((), ("tags",))
    listed, _, read, _ = not_carried(store, "sends-on")
    assert (listed, read) == ((), ("website-redirect",))


def test_an_archived_object_fails_with_the_reason(bucket: tuple[ObjectStore, Put]) -> None:
    store, put = bucket
    put("cold", StorageClass="DEEP_ARCHIVE")
    (listed,) = store.list("cold")
    assert listed.storage_class == "DEEP_ARCHIVE"
    assert "restore it" in listed.archived
    with pytest.raises(NotRestored, match="restore it") as failure:
        store.read("cold", offset=0, length=3, if_match=listed.etag)
    assert failure.value.is_permanent
