"""Rows beside a listing, or instead of one: by pages, at several readers, with damage."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.gateway.manifest.lab import Place, recorded, row_of

from skyplane_gateway.common.errors import ManifestUnreadable, StoreError
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.manifest import index
from skyplane_gateway.manifest.reader import ManifestReader

#: Small blocks make many of them.
KEYS = st.text(alphabet="ab/%é\N{PILE OF POO}", min_size=1, max_size=3)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_BLOCK_ROWS", 3)


@st.composite
def places(draw: st.DrawFn) -> tuple[Place, dict[str, str]]:
    """A place whose manifest has one to four segments; key -> the newest row's identity."""
    place = Place(draw(st.sampled_from(("", "f/"))))
    copies = {key: place.copy(key) for key in sorted(draw(st.sets(KEYS, max_size=12)))}
    known: dict[str, str] = {}
    segments = []
    for _ in range(draw(st.integers(1, 4))):
        keys = draw(st.sets(KEYS | st.sampled_from(["a", "b"]), max_size=8))
        rows = {key: draw(st.sampled_from(("", "old", copies.get(key, "gone")))) for key in keys}
        segments.append(rows)
        known |= rows
    place.write(*segments)
    return place, known


def by_pages(place: Place, data: Any, *, trusts: bool, prefix: str) -> list[ObjectInfo]:
    """As a lead asks: each page goes to one of two sinks, and one may be asked again."""
    readers = [ManifestReader(place.store, place.folder) for _ in range(2)]
    found: list[ObjectInfo] = []
    while True:
        after = found[-1].key if found else None
        reader = readers[data.draw(st.integers(0, 1))]
        join = reader.listing if trusts else reader.beside
        size = data.draw(st.integers(1, 4))
        page = list(islice(join(place.listing(prefix, after), place.folder + prefix, after), size))
        if data.draw(st.booleans()):
            continue  # The answer was lost.
        found += page
        if len(page) < size:
            return found


@given(st.data(), places(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_pages_at_several_readers_equal_one_pass(
    data: Any, made: tuple[Place, dict[str, str]], trusts: bool
) -> None:
    place, known = made
    prefix = data.draw(st.sampled_from(("", "a", "b/")))
    found = by_pages(place, data, trusts=trusts, prefix=prefix)
    wanted = {
        place.folder + key: f"v-{copy}"
        for key, copy in known.items()
        if copy and key.startswith(prefix)
    }
    if trusts:
        assert [row.key for row in found] == sorted(wanted)
        assert recorded(found) == wanted
        return
    listed = [row.key for row in place.listing(prefix)]
    assert [row.key for row in found] == listed
    assert recorded(found) == {key: wanted.get(key) for key in listed}
    states = {row.key: row.recorded.state for row in found if row.recorded}
    for key, state in states.items():
        is_same = known[key.removeprefix(place.folder)] == place.store.head(key).etag
        assert state == ("same" if is_same else "changed")


@given(places(), KEYS)
@settings(max_examples=100, deadline=None)
def test_the_newest_row_of_each_key_counts_from_any_start(
    made: tuple[Place, dict[str, str]], start: str
) -> None:
    place, known = made
    found = list(ManifestReader(place.store, place.folder).rows(start))
    assert found == [row_of(*one) for one in sorted(known.items()) if one[0] >= start]


def test_a_listing_may_begin_before_the_last_one_ended() -> None:
    """So the lead looks up an escaped key, out of the order of the others."""
    place = Place()
    place.write({key: place.copy(key) for key in "abcxyz"})
    reader = ManifestReader(place.store, "f/")
    assert len(list(islice(reader.beside(place.listing("x"), "f/x"), 1))) == 1
    found = list(reader.beside(place.listing(), "f/"))
    assert all(row.recorded for row in found), recorded(found)


def objects(place: Place, *, trusts: bool = False) -> tuple[list[ObjectInfo], ManifestReader]:
    reader = ManifestReader(place.store, place.folder)
    join = reader.listing if trusts else reader.beside
    return list(join(place.listing(), place.folder)), reader


def test_a_place_without_a_manifest_has_no_trouble() -> None:
    place = Place()
    place.copy("a")
    for trusts in (False, True):
        found, reader = objects(place, trusts=trusts)
        assert (recorded(found), reader.trouble) == ({"f/a": None}, "")


def test_an_empty_place_reads_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()
    place.write({"a": "x"})
    monkeypatch.setattr(place.store, "read", None)
    assert objects(place)[0] == []


@pytest.mark.parametrize("damage", ["gone", "cut", "other bytes", "newer", "no JSON"])
def test_objects_are_listed_without_rows_and_one_line_says_why(
    caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    place = Place()
    pointer = place.write({key: place.copy(key) for key in "abcdefgh"})
    key, name = place.index_key("s0"), "f/.skyplane/manifest/pointer.json"
    body = place.store._object(key).body
    if damage == "gone":
        place.store.delete(key)
    elif damage == "cut":
        place.store.put(key, body[:-1])
    elif damage == "other bytes":
        place.store.put(key, body[:5] + b"\0\0\0" + body[8:])
    elif damage == "newer":
        place.store.put(name, b'{"schema_version": 2}')
    else:
        place.store.put(name, b"{")
    caplog.set_level(logging.INFO, "skyplane_gateway.manifest.reader")
    reader = ManifestReader(place.store, "f/")
    found: list[ObjectInfo] = []
    while rest := list(islice(_after(place, reader, found), 2)):
        found += rest
    assert [row.key for row in found] == [f"f/{key}" for key in "abcdefgh"]
    assert set(recorded(found).values()) == {None}
    assert reader.trouble
    assert len(caplog.records) == 1, caplog.text
    assert pointer.newest


def _after(place: Place, reader: ManifestReader, found: list[ObjectInfo]) -> Any:
    after = found[-1].key if found else None
    return reader.beside(place.listing(start_after=after), "f/", after)


def test_a_lost_segment_never_shows_an_older_row_as_the_newest() -> None:
    place = Place()
    place.write({"a": place.copy("a"), "b": "x"}, {"a": "", "b": place.copy("b")})
    place.store.delete(place.index_key("s1"))
    found, reader = objects(place)
    assert set(recorded(found).values()) == {None}
    assert "gone" in reader.trouble
    trusted, reader = objects(place, trusts=True)
    assert [row.key for row in trusted] == ["f/a", "f/b"]
    assert "gone" in reader.trouble


def test_rows_that_are_lost_in_the_middle_are_no_absent_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The listing by rows alone ends with an error, rather than with copies over others."""
    monkeypatch.setattr("skyplane_gateway.manifest.reader._READ_BYTES", 1)
    place = Place()
    pointer = place.write({key: place.copy(key) for key in "abcdefgh"})
    key = place.index_key("s0")
    offset = pointer.segments[0].blocks[1][1]
    body = bytearray(place.store._object(key).body)
    body[offset + 4] ^= 255
    place.store.put(key, body)
    with pytest.raises(ManifestUnreadable):
        objects(place, trusts=True)
    found, reader = objects(place)
    assert [row.recorded is None for row in found] == [False] * 3 + [True] * 5
    assert reader.trouble


@given(st.lists(st.integers(-40, 400), min_size=3, max_size=3), st.integers(-1, 400))
@settings(max_examples=100, deadline=None)
def test_wrong_offsets_end_as_a_damaged_manifest(offsets: list[int], length: int) -> None:
    place = Place()
    pointer = place.write({key: place.copy(key) for key in "abcdefgh"})
    segment = pointer.segments[0]
    blocks = tuple(
        (first, offset) for (first, _), offset in zip(segment.blocks, offsets, strict=True)
    )
    place.point(replace(pointer, segments=(replace(segment, blocks=blocks, index_bytes=length),)))
    found, reader = objects(place)
    rows = recorded(found)
    versions = {f"f/{key}": f"v-{place.store.head(f'f/{key}').etag}" for key in "abcdefgh"}
    assert all(version in (None, versions[key]) for key, version in rows.items())
    assert reader.trouble or None not in rows.values() or len(set(offsets)) < 3
    with suppress(StoreError):
        list(ManifestReader(place.store, "f/").rows())
