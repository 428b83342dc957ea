"""Chunks that a sink takes in memory, from the source of the same gateway."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.memory_store import create_bucket

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import GatewayDraining
from skyplane_gateway.common.objects import IF_ABSENT, ObjectInfo, Precondition, StoreSpec
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, ObjectEntry
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.receipt import RawReceipt, Receipt, open_receipt
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.sink.receiver import Sink, SinkTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore, read_object

CHUNK = ChunkId(bytes(8), bytes(16), 1, 0, 1, 1)
CAPACITY = 100


class _CountingPuts:
    """A store that notes the keys of its PUTs."""

    def __init__(self, store: ObjectStore, keys: list[str]) -> None:
        self._store, self._keys = store, keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, *arguments: Any, **more: Any) -> ObjectInfo:
        self._keys.append(key)
        return self._store.put(key, *arguments, **more)


class Place:
    """A sink of 100 bytes with one transfer in epoch 1."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.receipts: list[RawReceipt] = []
        self.sink = Sink(
            capacity_bytes=CAPACITY, send_receipt=self.receipts.append, threads=threads
        )
        bucket = uuid.uuid4().hex
        create_bucket(bucket)
        self.store = open_store(StoreSpec("memory", bucket))
        self.puts: list[str] = []
        destination = Destination(_CountingPuts(self.store, self.puts), "stored")
        self.sink.attach(CHUNK.transfer, SinkTransfer(1, destination))

    def begin(self, number: int, length: int) -> memoryview | None:
        content = (ObjectEntry(f"key {number}", length),)
        return self.sink.begin_chunk(chunk(number), ChunkManifest(length, content))

    async def send(self, which: ChunkId, bodies: Mapping[str, bytes], fence: Precondition) -> None:
        """Write objects in one chunk; its receipt is there."""
        payload = b"".join(bodies.values())
        entries = tuple(
            ObjectEntry(key, len(body), precondition=fence) for key, body in bodies.items()
        )
        memory = self.sink.begin_chunk(which, ChunkManifest(len(payload), entries))
        assert memory is not None
        memory[:] = payload
        self.sink.end_chunk(which, crc32c(payload))
        await self.sink.drain()

    def last_receipt(self) -> Receipt:
        raw = self.receipts[-1]
        return open_receipt(raw.header, memoryview(b"".join(raw.sealed)))

    def refusal(self) -> str:
        """The code of the last receipt."""
        error = self.last_receipt().error
        assert error is not None
        return str(error["code"])


def chunk(number: int, attempt: int = 1) -> ChunkId:
    return replace(CHUNK, chunk=number, attempt=attempt)


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    with ThreadPoolExecutor(2) as threads:
        yield Place(threads)


async def test_a_chunk_is_written_and_its_memory_serves_again() -> None:
    async with place() as here:
        buffers = []
        for number, body in enumerate((b"a" * 60, b"b" * 50), start=1):
            memory = here.begin(number, len(body))
            assert memory is not None
            buffers.append(memory.obj)
            memory[:] = body
            here.sink.end_chunk(chunk(number), crc32c(body))
            await here.sink.drain()
            receipt = here.last_receipt()
            assert [(row.error, row.crc32c) for row in receipt.entries] == [(None, crc32c(body))]
            _, found = read_object(here.store, f"key {number}", max_bytes=len(body))
            assert found == body
        assert buffers[0] is buffers[1]
        assert here.sink.held_bytes == 0


async def test_a_chunk_beyond_the_memory_is_refused_and_one_that_is_dropped_makes_room() -> None:
    async with place() as here:
        assert here.begin(1, 60) is not None
        assert here.begin(2, 41) is None
        assert here.refusal() == "overloaded"
        here.sink.drop_chunk(chunk(1))
        assert here.sink.held_bytes == 0
        assert here.begin(3, 100) is not None


async def test_half_a_chunk_ends_with_its_epoch() -> None:
    async with place() as here:
        manifest = ChunkManifest(41, (ObjectEntry("key", 41),))
        frames = ChunkFramer(chunk(2), manifest, max_payload_bytes=10).feed(bytes(41))
        here.sink.on_frame(frames[0].header, memoryview(b"".join(frames[0].sealed)))
        assert here.sink.held_bytes == 41
        here.sink.attach(CHUNK.transfer, SinkTransfer(2, Destination(here.store, "stored")))
        assert here.sink.held_bytes == 0


@pytest.mark.parametrize("first", [0, 2], ids=["with the manifest", "without it"])
async def test_the_first_frame_of_a_chunk_beyond_the_memory_ends_it(first: int) -> None:
    async with place() as here:
        assert here.begin(1, 60) is not None
        manifest = ChunkManifest(41, (ObjectEntry("key", 41),))
        frames = ChunkFramer(chunk(2), manifest, max_payload_bytes=10).feed(bytes(41))
        for frame in (frames[first], *frames):
            here.sink.on_frame(frame.header, memoryview(b"".join(frame.sealed)))
        assert here.refusal() == "overloaded"
        assert (len(here.receipts), here.sink.held_bytes) == (1, 60)


@pytest.mark.parametrize("sent", [0, 2, 4])
async def test_a_source_that_gives_up_leaves_nothing_though_it_has_cut_all_frames(
    sent: int,
) -> None:
    async with place() as here:
        framer = ChunkFramer(
            chunk(1), ChunkManifest(41, (ObjectEntry("key", 41),)), max_payload_bytes=10
        )
        frames = framer.feed(bytes(41))
        end = framer.abort()
        assert (len(frames), framer.is_complete) == (5, True)
        assert end is not None
        for frame in (*frames[:sent], end, *frames[sent:]):
            here.sink.on_frame(frame.header, memoryview(b"".join(frame.sealed)))
        await here.sink.drain()
        assert (here.sink.held_bytes, here.puts) == (0, [])


async def test_a_new_attempt_takes_the_memory_of_the_one_before() -> None:
    async with place() as here:
        content = (ObjectEntry("key", 100),)
        for attempt in (1, 2):
            manifest = ChunkManifest(100, content)
            assert here.sink.begin_chunk(chunk(1, attempt), manifest) is not None
        assert here.sink.held_bytes == 100
        here.sink.end_chunk(chunk(1, 1), 0)
        await here.sink.drain()
        assert here.receipts == []


async def test_objects_of_a_chunk_that_is_sent_again_are_written_once() -> None:
    bodies = {"a": b"same", "b": b"size", "empty": b""}

    async with place() as here:
        await here.send(chunk(1, 1), {"a": b"same"}, IF_ABSENT)
        here.store.put("other", b"four")
        await here.send(chunk(1, 2), {**bodies, "other": b"mine"}, IF_ABSENT)
        assert sorted(here.puts) == ["a", "b", "empty", "other"]
        entries = here.last_receipt().entries
        assert [entry.error for entry in entries[:3]] == [None] * 3
        assert entries[0].etag == here.store.head("a").etag
        assert entries[3].error is not None
        assert entries[3].error["code"] == "precondition-failed"


async def test_an_equal_object_that_a_chunk_replaces_is_replaced_by_both_sendings() -> None:
    async with place() as here:
        old = here.store.put("key", b"body")
        fence = Precondition(if_match=old.etag)
        await here.send(chunk(1, 2), {"key": b"body"}, fence)
        assert here.puts == ["key"]
        assert [entry.error for entry in here.last_receipt().entries] == [None]


async def test_a_chunk_of_another_lead_and_of_a_sink_that_leaves_is_refused() -> None:
    async with place() as here:
        stale = replace(CHUNK, epoch=0)
        manifest = ChunkManifest(1, (ObjectEntry("key", 1),))
        assert here.sink.begin_chunk(stale, manifest) is None
        assert here.refusal() == "stale-epoch"
        assert here.begin(1, 60) is not None
        here.sink.hand_back(GatewayDraining("it leaves"))
        assert here.refusal() == "gateway-draining"
        assert here.begin(2, 1) is None
        here.sink.end_chunk(chunk(1), 0)
        await here.sink.drain()
        assert [receipt.header.chunk for receipt in here.receipts] == [1, 1, 2]
