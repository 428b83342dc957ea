"""The chunk manifest: hand-written bytes, limits from both sides, round trips."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.protocol.lab import OBJECTS, PART

from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, Precondition
from skyplane_gateway.protocol import (
    OBJECTS_BASE_BYTES,
    ChunkManifest,
    LocalProtocolError,
    ObjectEntry,
    PartEntry,
    RemoteProtocolError,
    decode_chunk_manifest,
    encode_chunk_manifest,
    object_entry_bytes,
)
from skyplane_gateway.protocol.limits import MAX_ENTRIES, MAX_MANIFEST

PART_HEX = (
    "0000000000000009 01"
    "0005 612f622e63"  # key
    "0002 7531"  # upload id
    "00000001 0000000000000000"  # number, offset
)

OBJECTS_HEX = (
    "0000000000000009 02 0003"
    "0001 61 0000000000000004 00 0000 00"
    "0002 c3a9 0000000000000000 00 0000 01"
    "0001 63 0000000000000005"
    "11 0003 742f78 0000"  # mask: content_type and cache_control
    "0002 0001 6b 0001 76 0001 6e 0000"  # two pairs of metadata
    "02 0003 226522"  # if-match
)

texts = st.text(st.characters(codec="utf-8"), max_size=40)
headers = st.none() | texts
pairs = st.lists(st.tuples(texts, texts), max_size=4).map(tuple)
entries = st.builds(
    ObjectEntry,
    texts.filter(bool),
    st.integers(0, 1 << 40),
    st.builds(
        ObjectAttributes,
        headers,
        headers,
        headers,
        headers,
        headers,
        pairs,
        pairs,
        headers,
    ),
    st.builds(Precondition, if_match=headers) | st.just(IF_ABSENT),
)
batches = st.lists(entries, min_size=1, max_size=6).map(tuple)
parts = st.builds(
    PartEntry,
    texts.filter(bool),
    texts,
    st.integers(1, (1 << 32) - 1),
    st.integers(0, (1 << 64) - 1),
)


@pytest.mark.parametrize(("manifest", "data"), [(PART, PART_HEX), (OBJECTS, OBJECTS_HEX)])
def test_bytes_of_the_specification(manifest: ChunkManifest, data: str) -> None:
    assert encode_chunk_manifest(manifest) == bytes.fromhex(data)
    assert decode_chunk_manifest(bytes.fromhex(data)) == manifest


@given(batches)
def test_batches_round_trip_and_count_as_announced(content: tuple[ObjectEntry, ...]) -> None:
    manifest = ChunkManifest(sum(entry.length_bytes for entry in content), content)
    data = encode_chunk_manifest(manifest)
    assert decode_chunk_manifest(data) == manifest
    assert len(data) == OBJECTS_BASE_BYTES + sum(map(object_entry_bytes, content))


@given(st.integers(0, (1 << 64) - 1), parts)
def test_parts_round_trip(length_bytes: int, part: PartEntry) -> None:
    manifest = ChunkManifest(length_bytes, part)
    assert decode_chunk_manifest(encode_chunk_manifest(manifest)) == manifest


@pytest.mark.parametrize("data", [PART_HEX, OBJECTS_HEX])
def test_every_cut_and_every_addition_is_refused(data: str) -> None:
    whole = bytes.fromhex(data)
    for size in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode_chunk_manifest(whole[:size])
    with pytest.raises(RemoteProtocolError, match="1 bytes too many"):
        decode_chunk_manifest(whole + b"\0")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (PART_HEX.replace("0009 01", "0009 03"), "kind 3"),
        (PART_HEX.replace("00000001 ", "00000000 "), "part number 0"),
        (PART_HEX.replace("0005 612f622e63", "0000"), "empty key"),
        (PART_HEX.replace("0005 612f622e63", "0001 ff"), "key is not UTF-8"),
        (PART_HEX.replace("0005 612f622e63", "1001" + "61" * 4097), "key has 4097 bytes"),
        (PART_HEX.replace("0002 7531", "0401" + "61" * 1025), "upload id has 1025 bytes"),
        (OBJECTS_HEX.replace("02 0003", "02 1001", 1), "4097 objects"),
        ("0000000000000000 02 0000", "0 objects"),
        (OBJECTS_HEX.replace("0000000000000009", "0000000000000008"), "objects of 9 bytes"),
        (OBJECTS_HEX.replace("00 0000 01", "40 0000 0000 01"), "there are none"),
        (OBJECTS_HEX.replace("11 0003", "91 0003"), "mask 0x91"),
        (OBJECTS_HEX.replace("02 0003 226522", "03 0003 226522"), "precondition 3"),
        (OBJECTS_HEX.replace("0001 61 ", "0000 "), "empty key"),
        (OBJECTS_HEX.replace("11 0003 742f78", "11 5001" + "61" * 20481), "content_type has"),
        (
            OBJECTS_HEX.replace(
                "11 0003 742f78 0000", "11 2800" + "61" * 10240 + "2800" + "61" * 10240
            ),
            "attributes of",
        ),
    ],
)
def test_invalid_bytes_from_a_peer_are_a_remote_error(data: str, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        decode_chunk_manifest(bytes.fromhex(data))


def big_attributes(size: int) -> ObjectAttributes:
    """Attributes that take exactly `size` bytes on the wire."""
    return ObjectAttributes(content_type="x" * (size - 5))


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (replace(PART, length_bytes=-1), "chunk length"),
        (replace(PART, content=PartEntry("k" * 4097, "", 1, 0)), "key has 4097"),
        (replace(PART, content=PartEntry("\udcff", "", 1, 0)), "not UTF-8"),
        (replace(PART, content=PartEntry("", "", 1, 0)), "empty key"),
        (replace(PART, content=PartEntry("k", "", 0, 0)), "part number 0"),
        (replace(PART, content=PartEntry("k", "u" * 1025, 1, 0)), "upload id has 1025"),
        (replace(PART, content=PartEntry("k", "", 1, 1 << 64)), "offset"),
        (replace(OBJECTS, content=()), "0 objects"),
        (replace(OBJECTS, length_bytes=10), "objects of 9 bytes in a chunk of 10"),
        (ChunkManifest(0, (ObjectEntry("", 0),)), "empty key"),
        (ChunkManifest(0, (ObjectEntry("k", 0),) * (MAX_ENTRIES + 1)), "4097 objects"),
        (ChunkManifest(0, (ObjectEntry("k", 0, big_attributes(20481)),)), "attributes of 'k'"),
        (
            ChunkManifest(0, (ObjectEntry("k", 0, precondition=Precondition(False, "e" * 1025)),)),
            "etag has 1025",
        ),
        (ChunkManifest(0, (ObjectEntry("k" * 1024, 0),) * 510), "the limit is 524288"),
    ],
)
def test_invalid_values_are_a_local_error(manifest: ChunkManifest, problem: str) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        encode_chunk_manifest(manifest)


def test_values_at_their_limits_are_allowed() -> None:
    largest = ChunkManifest(
        0,
        (ObjectEntry("k" * 1024, 0, big_attributes(20480), Precondition(False, "e" * 1024)),),
    )
    assert decode_chunk_manifest(encode_chunk_manifest(largest)) == largest
    many = ChunkManifest(0, tuple(ObjectEntry(f"{n:0113}", 0) for n in range(MAX_ENTRIES)))
    data = encode_chunk_manifest(many)
    assert MAX_MANIFEST - 2 * MAX_ENTRIES < len(data) <= MAX_MANIFEST
    assert decode_chunk_manifest(data) == many
    with pytest.raises(RemoteProtocolError, match="524289 bytes"):
        decode_chunk_manifest(bytes(MAX_MANIFEST + 1))
