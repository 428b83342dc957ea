"""What a relay without the key of a transfer cannot do to it.

`test_wire` alters, moves and forges single messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import buckets, content, copy_spec, fill, route
from tests.gateway.wire_attacks import TURNS, On, altering, flipped, repeated
from tests.gateway.wire_lab import PLACES
from tests.gateway.wire_layout import FIELDS
from tests.gateway.wire_proxy import Message, WireProxy

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.config import MIB
from skyplane_gateway.protocol.messages import (
    MessageType,
    pack_receipt_header,
    unpack_frame_header,
)
from skyplane_gateway.protocol.receipt import EntryResult, Receipt, seal_receipt
from skyplane_gateway.protocol.sealing import PROLOGUE_BYTES

RELAY = PLACES["relay"]


@pytest.mark.parametrize("is_encrypted", [True, False])
async def test_a_forged_receipt_acknowledges_nothing(fleet_of: Any, is_encrypted: bool) -> None:
    """The relay keeps all frames, and says that they are written."""
    source, destination = buckets({"key": b"body"})
    entry = EntryResult(None, "etag", crc32c(b"body"))
    receipt = Receipt(1, entries=(entry,))

    def acknowledge(message: Message) -> None:
        chunk = unpack_frame_header(message.head).chunk_id
        sealed = b"".join(seal_receipt(chunk, receipt).sealed)
        message.pipe.back.send(pack_receipt_header(chunk, len(sealed)) + sealed)

    proxy = WireProxy(On(acknowledge, RELAY.hop, TURNS["every"], MessageType.DATA), "r")
    deadlines = {"ack_deadline_s": 0.2, "stall_deadline_s": 0.5}
    async with fleet_of(route(0, *RELAY.nodes), wire=proxy, **deadlines) as fleet:
        status = await fleet.run(copy_spec(source, destination), is_encrypted=is_encrypted)
        assert status["state"] == ("failed" if is_encrypted else "succeeded")
    assert content(destination) == {}


async def test_repeated_frames_write_each_object_once(
    fleet_of: Any, wrap_stores: Callable[..., None]
) -> None:
    written: list[str] = []

    def put(original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        written.append(key)
        return original(key, *arguments, **more)

    wrap_stores(put=put)
    source, destination = buckets()
    objects = {f"key-{number}": b"body" for number in range(5)}
    fill(source, objects)
    proxy = WireProxy(On(repeated, RELAY.hop, TURNS["every"], MessageType.DATA), "r")
    async with fleet_of(route(0, *RELAY.nodes), wire=proxy) as fleet:
        status = await fleet.run(copy_spec(source, destination), is_encrypted=True)
        assert status["state"] == "succeeded"
    assert content(destination) == objects
    assert sorted(key for key in written if key in objects) == sorted(objects)


async def test_a_new_lead_seals_with_new_subkeys(fleet_of: Any) -> None:
    """Both epochs of one transfer succeed, and a frame of the first is of no use in the second."""
    source, destination = buckets({"first": b"1"})
    spec, transfer = copy_spec(source, destination), "ab" * 16
    epoch_field = next(field for field in FIELDS if str(field) == "DATA-epoch")
    as_of_now = altering(epoch_field, lambda value: (2).to_bytes(4, "big"))
    kept: list[Message] = []
    incarnations: dict[int, set[bytes]] = {1: set(), 2: set()}

    def replay(message: Message) -> None:
        epoch = unpack_frame_header(message.head).chunk_id.epoch
        kept.append(message)
        incarnations[epoch].add(message.body[2 : PROLOGUE_BYTES - 8])
        if epoch == 2:
            message.pipe.send(kept[0].data)
            as_of_now(Message(message.pipe, message.kind, kept[0].data, 0))
        message.forward()

    proxy = WireProxy(On(replay, RELAY.hop, TURNS["every"], MessageType.DATA), "r")
    async with fleet_of(route(0, *RELAY.nodes), wire=proxy) as fleet:
        await fleet.begin(transfer, spec, is_encrypted=True)
        assert (await fleet.ended(transfer))["copied"] == 1
        fill(source, {"second": b"2"})
        await fleet.begin(transfer, spec, epoch=2, is_encrypted=True)
        status = await fleet.ended(transfer)
        assert (status["error"], status["state"]) == (None, "succeeded")
    assert content(destination) == {"first": b"1", "second": b"2"}
    # Fresh for each attach: the counters begin at 0 again.
    assert incarnations[1]
    assert incarnations[2]
    assert incarnations[1].isdisjoint(incarnations[2])


async def test_a_sink_without_the_transfer_is_left_out(fleet_of: Any) -> None:
    """It has no key for its answer, and the source must not take that for damage."""
    source, destination = buckets()
    objects = {f"key-{number}": bytes(2 * MIB) for number in range(8)}
    fill(source, objects)
    transfer = "ab" * 16
    async with fleet_of(route(0, "a", "b"), route(1, "a", "c")) as fleet:
        await fleet.begin(
            transfer, copy_spec(source, destination, chunk_bytes=MIB), is_encrypted=True
        )
        await fleet.service("c").endpoints.release(transfer, 1)
        status = await fleet.ended(transfer)
        assert (status["error"], status["copied"]) == (None, 8)
    assert content(destination) == objects


async def test_forged_frames_do_not_make_a_sink_forget_what_it_writes(
    fleet_of: Any, gate: Any
) -> None:
    """Else the chunk would be sent and held again, beyond the limit of memory."""
    source, destination = buckets()
    objects = {f"key-{number}": bytes([number]) * (MIB // 2) for number in range(32)}
    fill(source, objects)
    tag = next(field for field in FIELDS if str(field) == "DATA-tag")
    forge = altering(tag, flipped)
    forged = 0

    def forge_later(message: Message) -> None:
        def send() -> None:
            nonlocal forged
            forged += 1
            forge(message)

        message.forward()
        asyncio.get_running_loop().call_later(0.02, send)

    proxy = WireProxy(On(forge_later, RELAY.hop, TURNS["every"], MessageType.DATA), "r")
    async with fleet_of(route(0, *RELAY.nodes), wire=proxy) as fleet:
        transfer = "ab" * 16
        await fleet.begin(
            transfer, copy_spec(source, destination, chunk_bytes=MIB), is_encrypted=True
        )
        sink = fleet.service("b").endpoints._sink
        await fleet.until(lambda: forged >= 8 and len(sink._writes) > 0)
        assert sink.held_bytes >= len(sink._writes) * MIB
        gate.open()
        assert (await fleet.ended(transfer))["error"] is None
    assert content(destination) == objects
