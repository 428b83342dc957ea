"""The chunk manifest: the document of the specification, limits from both sides, round trips."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.gateway.protocol.lab import OBJECTS, PART

from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, Precondition
from skyplane_gateway.protocol.chunk_manifest import (
    OBJECTS_BASE_BYTES,
    ChunkManifest,
    Member,
    ObjectEntry,
    PartEntry,
    decode_chunk_manifest,
    encode_chunk_manifest,
    object_entry_bytes,
)
from skyplane_gateway.protocol.errors import LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.limits import MAX_ENTRIES, MAX_MANIFEST

PART_DOCUMENT: dict[str, Any] = {
    "length_bytes": 9,
    "part": {"key": "a/b.c", "upload_id": "u1", "number": 1, "offset": 0},
}
OBJECTS_DOCUMENT: dict[str, Any] = {
    "length_bytes": 9,
    "objects": [
        {"key": "a", "length_bytes": 4},
        {
            "key": "é",
            "length_bytes": 0,
            "precondition": {"if_absent": True, "if_match": None},
        },
        {
            "key": "c",
            "length_bytes": 5,
            "attributes": {
                "content_type": "t/x",
                "cache_control": "",
                "metadata": {"k": "v", "n": ""},
            },
            "precondition": {"if_absent": False, "if_match": '"e"'},
        },
    ],
}

texts = st.text(st.characters(codec="utf-8"), max_size=40)
headers = st.none() | texts
pairs = st.dictionaries(texts, texts, max_size=4).map(lambda found: tuple(sorted(found.items())))
entries = st.builds(
    ObjectEntry,
    texts.filter(bool),
    st.integers(0, 1 << 40),
    st.builds(ObjectAttributes, headers, headers, headers, headers, headers, pairs, pairs, headers),
    st.builds(Precondition, if_match=headers) | st.just(IF_ABSENT),
)
batches = st.lists(entries, min_size=1, max_size=6).map(tuple)


@pytest.mark.parametrize(
    ("manifest", "document"), [(PART, PART_DOCUMENT), (OBJECTS, OBJECTS_DOCUMENT)]
)
def test_documents_of_the_specification(manifest: ChunkManifest, document: dict[str, Any]) -> None:
    assert json.loads(encode_chunk_manifest(manifest)) == document
    assert decode_chunk_manifest(json.dumps(document).encode()) == manifest


@given(batches)
def test_batches_round_trip_and_take_no_more_than_announced(
    content: tuple[ObjectEntry, ...],
) -> None:
    manifest = ChunkManifest(sum(entry.length_bytes for entry in content), content)
    data = encode_chunk_manifest(manifest)
    assert decode_chunk_manifest(data) == manifest
    assert len(data) <= OBJECTS_BASE_BYTES + sum(map(object_entry_bytes, content))


def test_the_largest_number_needs_no_more_room_than_announced() -> None:
    entry = ObjectEntry("k", 1 << 63)
    data = encode_chunk_manifest(ChunkManifest(1 << 63, (entry,)))
    assert len(data) <= OBJECTS_BASE_BYTES + object_entry_bytes(entry)


def test_every_cut_and_every_addition_is_refused() -> None:
    whole = encode_chunk_manifest(PART)
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode_chunk_manifest(whole[:size])
    with pytest.raises(RemoteProtocolError, match="Extra data"):
        decode_chunk_manifest(whole + b"0")


def part(**changes: object) -> dict[str, Any]:
    return {**PART_DOCUMENT, "part": {**PART_DOCUMENT["part"], **changes}}


def objects(length_bytes: int, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"length_bytes": length_bytes, "objects": list(rows)}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"length_bytes": 0}, "0 objects"),
        (objects(0), "0 objects"),
        ({**PART_DOCUMENT, "length_bytes": -1}, "-1 bytes"),
        ({**PART_DOCUMENT, "kind": 3}, "has no kind"),
        ({**PART_DOCUMENT, **objects(9, {"key": "k", "length_bytes": 9})}, "a part and objects"),
        (part(number=0), "part number 0"),
        (part(offset=-1), "9 bytes at -1"),
        (part(key=""), "empty key"),
        (part(key=7), "must be text"),
        (objects(0, *[{"key": "k", "length_bytes": 0}] * (MAX_ENTRIES + 1)), "65 objects"),
        (objects(8, {"key": "k", "length_bytes": 9}), "objects of 9 bytes"),
        (objects(0, {"key": "k", "length_bytes": 1}, {"key": "l", "length_bytes": -1}), "0 bytes"),
        (objects(0, {"key": "", "length_bytes": 0}), "empty key"),
        (objects(0, {"key": "k"}), "lacks length_bytes"),
    ],
)
def test_an_invalid_document_from_a_peer_is_a_remote_error(
    document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        decode_chunk_manifest(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff", "utf-8"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "must be a JSON object"),
        (b" " * (MAX_MANIFEST + 1), "524289 bytes"),
    ],
)
def test_what_is_no_document_is_a_remote_error(data: bytes, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        decode_chunk_manifest(data)


def big(size: int) -> ObjectEntry:
    """An object whose attributes take about so many bytes."""
    return ObjectEntry("k", 0, ObjectAttributes(content_type="x" * size))


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (replace(PART, content=PartEntry("\udcff", "", 1, 0)), "not UTF-8"),
        (replace(PART, content=PartEntry("", "", 1, 0)), "empty key"),
        (replace(PART, content=PartEntry("k", "", 0, 0)), "part number 0"),
        (replace(OBJECTS, content=()), "0 objects"),
        (replace(OBJECTS, length_bytes=10), "objects of 9 bytes in a chunk of 10"),
        (ChunkManifest(0, (ObjectEntry("k", 0),) * (MAX_ENTRIES + 1)), "65 objects"),
        (ChunkManifest(0, (big(MAX_MANIFEST),)), "the limit is 524288"),
    ],
)
def test_invalid_values_are_a_local_error(manifest: ChunkManifest, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        encode_chunk_manifest(manifest)


def test_an_object_that_fits_no_manifest_is_named() -> None:
    assert object_entry_bytes(big(MAX_MANIFEST // 2)) < MAX_MANIFEST
    with pytest.raises(LocalProtocolError, match="manifest of 'k'"):
        object_entry_bytes(big(MAX_MANIFEST))


MEMBERS = (
    Member("ab" * 16, 2, 5, 1, part=PartEntry("a/b.c", "u1", 1, 0)),
    Member("cd" * 16, 1, 7, 1, objects=(ObjectEntry("a", 9),)),
)


def test_members_have_their_own_numbers_and_content() -> None:
    manifest = ChunkManifest(9, (), MEMBERS)
    data = encode_chunk_manifest(manifest)
    assert json.loads(data) == {
        "length_bytes": 9,
        "members": [
            {
                "transfer": "ab" * 16,
                "epoch": 2,
                "chunk": 5,
                "attempt": 1,
                "part": {"key": "a/b.c", "upload_id": "u1", "number": 1, "offset": 0},
            },
            {
                "transfer": "cd" * 16,
                "epoch": 1,
                "chunk": 7,
                "attempt": 1,
                "objects": [{"key": "a", "length_bytes": 9}],
            },
        ],
    }
    assert decode_chunk_manifest(data) == manifest
    assert manifest.of_member(b"\xcd" * 16) == MEMBERS[1]
    assert manifest.of_member(bytes(16)) is None


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (ChunkManifest(9, (ObjectEntry("a", 9),), MEMBERS), "beside its members"),
        (ChunkManifest(9, (), MEMBERS[:1] * 2), "a member twice"),
        (ChunkManifest(8, (), MEMBERS), "objects of 9 bytes"),
    ],
)
def test_members_that_contradict_their_chunk_are_a_local_error(
    manifest: ChunkManifest, problem: str
) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        encode_chunk_manifest(manifest)
