"""Commits one after another: contents, tiers, snapshots, and files that are left over."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.manual_clock import ManualClock
from tests.memory_store import MemoryStore
from tests.storage.manifest.lab import (
    FOLDER,
    PREFIX,
    by_index,
    commit,
    contents,
    empty_store,
    snapshot,
    table,
)

from skyplane_gateway.common.objects import UNCONDITIONAL, StoreSpec
from skyplane_gateway.manifest.document import read_pointer
from skyplane_gateway.manifest.index import decode_block
from skyplane_orchestration.errors import StoreError
from skyplane_orchestration.storage.manifest.commit import ManifestCommit

KEYS = st.text(alphabet="ab/é\N{PILE OF POO}", min_size=1, max_size=3)
CHANGES = st.dictionaries(KEYS, st.none() | st.text("xy", min_size=1, max_size=2), max_size=9)


@given(st.lists(CHANGES.filter(bool), min_size=1, max_size=9))
@settings(max_examples=25, deadline=None)
def test_contents_are_those_of_a_dictionary(runs: list[dict[str, str | None]]) -> None:
    store = empty_store()
    known: dict[str, str | None] = {}
    for number, changes in enumerate(runs, 1):
        pointer = commit(store, f"run {number}", changes)
        known |= changes
        assert pointer.snapshots[-1].commit == number
        wanted = {key: copy for key, copy in sorted(known.items()) if copy is not None}
        assert contents(store) == wanted


def test_segments_and_snapshots_stay_few_over_many_commits() -> None:
    rng, store = random.Random(36), empty_store()
    known: dict[str, str | None] = {}
    most = 0
    for number in range(200):
        count = int(2 ** rng.uniform(0, 9)) if rng.random() < 0.1 else 1
        changes = {
            f"k{rng.randrange(2000):04}": None if rng.random() < 0.2 else f'"{number}"'
            for _ in range(count)
        }
        pointer = commit(store, f"run {number}", changes)
        known |= changes
        most = max(most, len(pointer.newest))
        sizes = [one.rows for one in pointer.newest]
        assert all(before > 4 * after for before, after in pairwise(sizes))
    assert most <= 6
    assert [one.commit for one in pointer.snapshots] == list(range(171, 201))
    assert len({one.id for one in pointer.snapshots}) == 30
    assert contents(store) == {key: one for key, one in sorted(known.items()) if one is not None}
    # What no snapshot names is gone.
    files = {info.key.removeprefix(PREFIX).rpartition(".")[0] for info in store.list(PREFIX)}
    assert files == {one.name for one in pointer.segments} | {"pointer"}
    assert {name for one in pointer.snapshots for name in one.segments} == files - {"pointer"}


def test_every_snapshot_can_still_be_read() -> None:
    store, states = empty_store(), {}
    for number in range(40):
        pointer = commit(store, f"run {number}", {f"k{number}": "x", f"k{number - 5}": None})
        states[pointer.snapshots[-1].id] = by_index(store)
    for one in pointer.snapshots:
        rows: dict[str, str] = {}
        for segment in pointer.segments_of(one):
            name = f"{PREFIX}{segment.name}.index"
            rows |= index_rows(store, name, segment.stores)
        assert {key: copy for key, copy in sorted(rows.items()) if copy} == states[one.id]


def index_rows(store: MemoryStore, key: str, stores: tuple[str, ...]) -> dict[str, str]:
    return {row.key: row.copy for row in decode_block(store._object(key).body, stores)}


def test_files_of_a_commit_that_ended_go_after_a_day_by_the_store_s_clock() -> None:
    empty_store()
    clock = ManualClock(1.6e9)
    store = MemoryStore(StoreSpec("memory", "commits"), clock.clock)
    commit(store, "first", {"a": "x"})
    left = [f"{PREFIX}{name}" for name in ("0dd.segment", "0dd.index", "odd.tmp.index")]
    for key in left:
        store.put(key, b"left")
    clock.advance(23 * 3600)
    commit(store, "second", {"b": "x"})
    assert all(store.head(key) for key in left)
    clock.advance(2 * 3600)
    commit(store, "third", {"c": "x"})
    # The newest file of the place tells the time, and it was written two hours ago.
    clock.advance(1)
    commit(store, "fourth", {"d": "x"})
    assert not [info.key for info in store.list(PREFIX) if info.key in left]
    assert contents(store) == dict.fromkeys("abcd", "x")


def test_damage_of_every_kind_loses_rows_and_no_run() -> None:
    """A later commit always succeeds, and its own rows are there."""
    wanted: dict[str, dict[str, str | None]] = {"first": {"a": "1", "b": "1"}, "second": {"c": "2"}}
    for victim in ("segment", "index", "pointer.json"):
        for how in ("gone", "empty", "cut", "other bytes"):
            store = empty_store()
            for name, changes in wanted.items():
                commit(store, name, changes)
            damage(store, victim, how)
            commit(store, "third", {"d": "3"})
            found = contents(store)
            assert found["d"] == "3", (victim, how)
            assert found.items() <= {"a": "1", "b": "1", "c": "2", "d": "3"}.items()


def damage(store: MemoryStore, victim: str, how: str) -> None:
    for info in list(store.list(PREFIX)):
        body = store._object(info.key).body
        if not info.key.endswith(victim):
            continue
        if how == "gone":
            store.delete(info.key)
        elif how == "other bytes":
            middle = len(body) // 2
            store.put(info.key, body[:middle] + bytes(8) + body[middle + 8 :])
        else:
            store.put(info.key, b"" if how == "empty" else body[:-1])


def test_a_segment_with_damage_at_any_byte_is_merged_right_or_not_at_all() -> None:
    store = empty_store()
    pointer = commit(store, "first", {"a": "1", "b": "1", "c": "1"})
    key = f"{PREFIX}{pointer.newest[0].name}.segment"
    body = store._object(key).body
    kept = dict(store._bucket.objects)
    for at in range(0, len(body), 23):
        store._bucket.objects.clear()
        store._bucket.objects.update(kept)
        damaged = bytearray(body)
        damaged[at] ^= 1 << at % 8
        store.put(key, damaged)
        commit(store, "second", {"d": "2"})
        assert contents(store) in ({"d": "2"}, {"a": "1", "b": "1", "c": "1", "d": "2"}), at


def test_a_segment_that_is_lost_at_the_merge_takes_older_ones_along() -> None:
    """It may have said that their objects were deleted."""
    store = empty_store()
    commit(store, "first", {f"k{at}": "1" for at in range(100)})
    pointer = commit(store, "second", {"k0": None, "k1": "2"})
    assert len(pointer.newest) == 2
    key = f"{PREFIX}{pointer.newest[1].name}.segment"
    body = bytearray(store._object(key).body)
    body[20] ^= 255
    store.put(key, body)
    commit(store, "third", {"new": "3"})
    assert contents(store) == {"new": "3"}


def test_a_store_that_ignores_preconditions_keeps_no_manifest() -> None:
    class Careless(MemoryStore):
        def put(self, key: str, data: Any, **more: Any) -> Any:
            return super().put(key, data, **{**more, "precondition": UNCONDITIONAL})

    empty_store()
    store = Careless(StoreSpec("memory", "commits"))
    with pytest.raises(StoreError, match="ignores preconditions"):
        commit(store, "first", {"a": "1"})
    assert list(store.list("")) == []


def test_a_newer_release_s_manifest_is_never_replaced() -> None:
    store = empty_store()
    store.put(f"{PREFIX}pointer.json", b'{"schema_version": 2}')
    before = [info.etag for info in store.list("")]
    with pytest.raises(StoreError, match="newer release"):
        ManifestCommit(store, FOLDER, snapshot("first")).run(table({"a": "1"}))
    assert [info.etag for info in store.list("")] == before


def test_a_manifest_that_was_copied_along_begins_anew() -> None:
    store = empty_store("other")
    commit(store, "first", {"a": "1"})
    copied = empty_store()
    for info in store.list(PREFIX):
        copied.put(info.key, store._object(info.key).body)
    commit(copied, "second", {"b": "2"})
    assert contents(copied) == {"b": "2"}
    found = read_pointer(copied, FOLDER)
    assert found is not None
    assert [one.id for one in found[0].snapshots] == ["second"]
