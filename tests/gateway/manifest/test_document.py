"""The pointer of a manifest, whole and damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.memory_store import MemoryStore, create_bucket

from skyplane_gateway.common.errors import ManifestUnreadable
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.manifest import document as module
from skyplane_gateway.manifest.document import (
    Pointer,
    Segment,
    Snapshot,
    encode_pointer,
    read_pointer,
)

SEGMENT = Segment("5e9", 3, 40, 30, "aa", "bb", ("s3://a/",), (("k\N{SNOWMAN}", 0), ("m", 20)))
SNAPSHOT = Snapshot("id", 7, "o/r", "s3://a/", "memory://b/f/", 1.7e9, 2, 1, ("5e9",), "sig")
POINTER = Pointer("memory://b/f/", (SEGMENT,), (replace(SNAPSHOT, id="i", commit=6), SNAPSHOT))
KEY = "f/.skyplane/manifest/pointer.json"


@pytest.fixture
def store() -> MemoryStore:
    create_bucket("b")
    return MemoryStore(StoreSpec("memory", "b"))


def test_a_pointer_comes_back_with_its_etag(store: MemoryStore) -> None:
    assert read_pointer(store, "f/") is None
    etag = store.put(KEY, encode_pointer(POINTER)).etag
    assert read_pointer(store, "f/") == (POINTER, etag)
    assert POINTER.newest == (SEGMENT,)
    assert POINTER.next_commit == 8


def test_a_pointer_that_is_cut_anywhere_may_be_replaced(store: MemoryStore) -> None:
    body = encode_pointer(POINTER)
    for length in range(len(body)):
        etag = store.put(KEY, body[:length]).etag
        with pytest.raises(ManifestUnreadable) as caught:
            read_pointer(store, "f/")
        assert caught.value.etag == etag


def test_damage_at_any_byte_of_a_pointer_is_found_or_harmless(store: MemoryStore) -> None:
    """Rows are compared with what is there, so a wrong name or number never makes two equal."""
    body = encode_pointer(POINTER)
    for at in range(len(body)):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[at] ^= 1 << bit
            store.put(KEY, damaged)
            try:
                found = read_pointer(store, "f/")
            except ManifestUnreadable:
                continue
            assert found is not None
            assert found[0].place == POINTER.place


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = POINTER.to_dict()
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("body", "may_be_replaced", "why"),
    [
        (changed(lambda one: one.update(schema_version=2)), False, "newer release"),
        (changed(lambda one: one.update(schema_version="2")), True, "damaged"),
        (changed(lambda one: one.pop("schema_version")), True, "damaged"),
        (changed(lambda one: one.update(place="memory://b/g/")), True, "not of this place"),
        (changed(lambda one: one["segments"].clear()), True, "damaged"),
        (changed(lambda one: one["snapshots"][0]["segments"].append("no")), True, "damaged"),
        (b"[" * 100_000, True, "damaged"),
        (b"[]", True, "damaged"),
        (b"null", True, "damaged"),
        (b"\xff", True, "damaged"),
        (b"", True, "damaged"),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_what_a_pointer_may_not_say(
    store: MemoryStore, body: bytes, may_be_replaced: bool, why: str
) -> None:
    etag = store.put(KEY, body).etag
    with pytest.raises(ManifestUnreadable, match=why) as caught:
        read_pointer(store, "f/")
    assert caught.value.etag == (etag if may_be_replaced else "")


def test_a_newer_release_says_so_although_the_rest_is_not_known(store: MemoryStore) -> None:
    store.put(KEY, b'{"schema_version": 9, "tables": []}')
    with pytest.raises(ManifestUnreadable, match="newer release"):
        read_pointer(store, "f/")


def test_a_pointer_that_is_too_large_stays(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_POINTER_BYTES", 100)
    store.put(KEY, encode_pointer(POINTER))
    with pytest.raises(ManifestUnreadable) as caught:
        read_pointer(store, "f/")
    assert caught.value.etag == ""
