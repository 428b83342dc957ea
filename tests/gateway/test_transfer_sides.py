"""The source and sink sides at one gateway, without a network."""

from __future__ import annotations

import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

import pytest
from tests.memory_store import MemoryStore, create_bucket, delete_bucket

from skyplane_gateway import transfer_sides as module
from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    InternalError,
    NotFound,
    StaleEpoch,
    StoreUnavailable,
    Throttled,
    UnknownTransfer,
)
from skyplane_gateway.common.identifiers import wire_transfer_id
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.config import AttachOrder, End, GatewayConfig
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame
from skyplane_gateway.sink.receiver import Sink
from skyplane_gateway.source.chunk_orders import ChunkOrder, RangeOrder
from skyplane_gateway.transfer_sides import TransferSides

ENDS: tuple[End, ...] = ("source", "sink")
KEY, OTHER = "ab" * 16, "cd" * 16


class NoRoutes:
    """The network loses everything."""

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None: ...

    def frame_bytes(self, number: int) -> int:
        return MAX_PAYLOAD_BYTES

    def loss(self, number: int) -> None: ...

    def local_sink(self, number: int) -> None: ...

    def fork(self, number: int) -> None: ...

    def branch(self, number: int) -> None: ...


@asynccontextmanager
async def gateway() -> AsyncIterator[TransferSides]:
    config = GatewayConfig(
        "a", "ef" * 16, "127.0.0.1", "127.0.0.1", directory="/nowhere", store_threads=2
    )
    with ThreadPoolExecutor(2) as threads:
        made = TransferSides(
            config,
            sink=Sink(capacity_bytes=1 << 20, send_receipt=lambda _: None, threads=threads),
            routes=NoRoutes(),
            threads=threads,
            is_led=lambda key: False,
        )
        yield made
        await made.close()


@pytest.fixture
def bucket() -> Iterator[StoreSpec]:
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    yield spec
    delete_bucket(spec.bucket)


async def attach(made: TransferSides, side: End, bucket: StoreSpec, epoch: int = 1) -> None:
    await made.attach(KEY, AttachOrder(epoch, side, bucket))


# -- epochs


@pytest.mark.parametrize("side", ["source", "sink"])
async def test_an_older_epoch_is_refused(side: End, bucket: StoreSpec) -> None:
    async with gateway() as made:
        await attach(made, side, bucket, epoch=2)
        with pytest.raises(StaleEpoch):
            await attach(made, side, bucket, epoch=1)
        if side == "source":
            with pytest.raises(StaleEpoch):
                made.source(KEY, 1)
        else:
            with pytest.raises(StaleEpoch):
                await made.store_verb(KEY, 1, "head", {"key": "k"})
        with pytest.raises(StaleEpoch):
            await made.renew_credentials(KEY, epoch=1, side=side, credentials=Credentials({}))
        with pytest.raises(UnknownTransfer):
            await made.renew_credentials("cd" * 16, epoch=1, side=side, credentials=Credentials({}))
        assert made.attached() == {KEY: {"epoch": 2, "is_used": False}}


async def test_a_bandwidth_limit_ends_with_its_transfer(bucket: StoreSpec) -> None:
    async with gateway() as made:
        await made.attach(KEY, AttachOrder(1, "source", bucket, bytes_per_s=10.0))
        is_limited = partial(made._gateway.bandwidth.is_limited, wire_transfer_id(KEY))
        assert is_limited()
        await attach(made, "sink", bucket)
        assert is_limited()
        await made.release(KEY, 1)
        assert not is_limited()


async def test_a_source_does_not_work_for_an_epoch_that_did_not_attach_it(
    bucket: StoreSpec,
) -> None:
    """Sinks would refuse its chunks, which carry the old epoch."""

    async with gateway() as made:
        await attach(made, "source", bucket, epoch=1)
        with pytest.raises(UnknownTransfer):
            made.source(KEY, 2)


async def test_a_sink_obeys_a_newer_epoch_and_then_no_older_one(bucket: StoreSpec) -> None:
    async with gateway() as made:
        await attach(made, "sink", bucket, epoch=1)
        await made.store_verb(KEY, 2, "head", {"key": "k"})
        assert made.attached() == {KEY: {"epoch": 2, "is_used": True}}
        with pytest.raises(StaleEpoch):
            await made.store_verb(KEY, 1, "head", {"key": "k"})


async def test_a_release_of_an_older_epoch_changes_nothing(bucket: StoreSpec) -> None:
    async with gateway() as made:
        await attach(made, "source", bucket, epoch=2)
        await attach(made, "sink", bucket, epoch=2)
        assert not await made.release(KEY, 1)
        assert made.ended_epochs.rows() == {}
        assert made.source(KEY, 2) is made.sources[KEY]
        await made.store_verb(KEY, 2, "head", {"key": "k"})


async def test_the_newest_released_and_acknowledged_epochs_are_remembered(
    bucket: StoreSpec,
) -> None:
    async with gateway() as made:
        await attach(made, "sink", bucket, epoch=3)
        await made.release(KEY, 3)
        assert made.ended_epochs.rows() == {KEY: {"epoch": 3, "heard": 0}}
        await attach(made, "sink", bucket, epoch=4)
        await made.release(KEY, 3, journals_in="")
        assert made.ended_epochs.rows() == {KEY: {"epoch": 3, "heard": 0}}
        await made.release(KEY, 4, journals_in="")
        assert made.ended_epochs.rows() == {KEY: {"epoch": 4, "heard": 4}}
        assert made.attached() == {}


async def test_a_side_that_is_in_use_keeps_its_store_when_it_is_attached_again(
    bucket: StoreSpec,
) -> None:
    async with gateway() as made:
        for side in ENDS:
            await attach(made, side, bucket)
        before = made.sources[KEY], made.destinations[KEY]
        for side in ENDS:
            await attach(made, side, bucket)
        unused = made.sources[KEY], made.destinations[KEY]
        assert all(one is not other for one, other in zip(before, unused, strict=True))
        made.source(KEY, 1).take(ChunkOrder(1, 1, 0, "objects", (RangeOrder("k", "e", 0, 1, "k"),)))
        await made.store_verb(KEY, 1, "head", {"key": "k"})
        for side in ENDS:
            await attach(made, side, bucket)
        assert (made.sources[KEY], made.destinations[KEY]) == unused


# -- attach


async def test_a_store_that_is_not_used_is_closed(
    bucket: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[StoreSpec] = []
    monkeypatch.setattr(MemoryStore, "close", lambda store: closed.append(store.spec))
    missing = StoreSpec("memory", "nowhere")

    async with gateway() as made:
        await attach(made, "source", bucket, epoch=2)
        assert closed == []
        with pytest.raises(StaleEpoch):
            await attach(made, "source", bucket, epoch=1)
        with pytest.raises(NotFound):
            await attach(made, "sink", missing)
        assert closed == [bucket, missing]


async def test_a_store_that_hangs_is_named(
    bucket: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(MemoryStore, "check", lambda store, prefix="": over.wait(60))
    monkeypatch.setattr(module, "_CHECK_TIMEOUT_S", 0.1)

    async with gateway() as made:
        try:
            with pytest.raises(StoreUnavailable, match=f"memory://{bucket.bucket}"):
                await attach(made, "sink", bucket)
        finally:
            over.set()


async def test_a_store_that_throttles_is_attached(
    bucket: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: MemoryStore, prefix: str = "") -> None:
        raise Throttled("slow down")

    monkeypatch.setattr(MemoryStore, "check", refuse)
    monkeypatch.setattr(module, "_THROTTLE_TIMEOUT_S", 0.0)

    async with gateway() as made:
        await attach(made, "sink", bucket)
        assert set(made.destinations) == {KEY}


# -- verbs


async def test_a_verb_with_broken_arguments_is_refused(bucket: StoreSpec) -> None:
    async with gateway() as made:
        await attach(made, "sink", bucket)
        with pytest.raises(ConfigurationInvalid):
            await made.store_verb(KEY, 1, "explode", {})
        # A lead of the same version does not send this.
        with pytest.raises(InternalError):
            await made.store_verb(KEY, 1, "complete", {"parts": 7, "size_bytes": 1})
        with pytest.raises(UnknownTransfer):
            await made.store_verb(OTHER, 1, "list", {})


async def test_describe_and_chunks_send_no_request_and_do_not_count_as_use(
    bucket: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateway() as made:
        await attach(made, "sink", bucket)
        made.verb_threads.close()
        assert (await made.store_verb(KEY, 1, "describe", {}))["capacity_bytes"] == 1 << 20
        assert await made.store_verb(KEY, 1, "chunks", {}) == {"chunks": []}
        assert not made.attached()[KEY]["is_used"]
