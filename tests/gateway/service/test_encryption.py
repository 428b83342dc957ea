"""A relay that attacks an encrypted transfer: it reads nothing, forges nothing, hangs nothing."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.checksum import crc32c
from skyplane_gateway.config import MIB
from skyplane_gateway.protocol import (
    ChunkId,
    EntryResult,
    FrameHeader,
    Receipt,
    ReceiptStatus,
    seal_receipt,
)
from skyplane_gateway.protocol.frames import BODY_HEAD_BYTES
from skyplane_gateway.protocol.sealing import PROLOGUE_BYTES, TAG_BYTES

#: What an attack sends on in place of one frame.
Sent = list[tuple[FrameHeader, bytes]]
Attack = Callable[[FrameHeader, bytearray], Sent]

#: The polynomial of CRC32C with its highest term, in the order of bits on the wire.
POLYNOMIAL = 0x1_05EC_76F1


def flipped(place: int) -> Attack:
    def attack(header: FrameHeader, sealed: bytearray) -> Sent:
        sealed[place] ^= 1
        return [(header, bytes(sealed))]

    return attack


def relabelled(**fields: Any) -> Attack:
    def attack(header: FrameHeader, sealed: bytearray) -> Sent:
        of_frame = {name: fields[name] for name in fields if name in ("frame", "is_last")}
        of_chunk = {name: fields[name] for name in fields if name not in of_frame}
        chunk = replace(header.chunk_id, **of_chunk)
        return [(replace(header, chunk_id=chunk, **of_frame), bytes(sealed))]

    return attack


def polynomial_added(header: FrameHeader, sealed: bytearray) -> Sent:
    """Adds the polynomial of CRC32C to the payload: in plain text no checksum changes."""
    for place, byte in enumerate(POLYNOMIAL.to_bytes(5, "little"), start=-TAG_BYTES - 5):
        sealed[place] ^= byte
    return [(header, bytes(sealed))]


def in_plain_text(header: FrameHeader, sealed: bytearray) -> Sent:
    sealed[:PROLOGUE_BYTES] = bytes(PROLOGUE_BYTES)
    sealed[-TAG_BYTES:] = bytes(TAG_BYTES)
    return [(header, bytes(sealed))]


def cut_short(header: FrameHeader, sealed: bytearray) -> Sent:
    return [(header, bytes(sealed[:-1]))]


def emptied(header: FrameHeader, sealed: bytearray) -> Sent:
    return [(header, b"")]


def repeated(header: FrameHeader, sealed: bytearray) -> Sent:
    return [(header, bytes(sealed))] * 3


def of_an_earlier_frame() -> Attack:
    """Sends the first frame again in place of each later one, under the later one's header."""
    first: list[bytes] = []

    def attack(header: FrameHeader, sealed: bytearray) -> Sent:
        first.append(bytes(sealed))
        return [(header, first[0])]

    return attack


def held_back() -> Attack:
    """Keeps a frame until its next turn, and sends it after that one, on another connection."""
    held: Sent = []

    def attack(header: FrameHeader, sealed: bytearray) -> Sent:
        late, held[:] = held[:], [(header, bytes(sealed))]
        return [(header, bytes(sealed)), *late] if late else []

    return attack


def withheld(header: FrameHeader, sealed: bytearray) -> Sent:
    return []


ATTACKS: dict[str, Callable[[], Attack]] = {
    "suite": lambda: flipped(1),
    "incarnation": lambda: flipped(2),
    "counter": lambda: flipped(PROLOGUE_BYTES - 1),
    "checksum of the head": lambda: flipped(PROLOGUE_BYTES),
    "checksum of the payload": lambda: flipped(PROLOGUE_BYTES + 4),
    "offset": lambda: flipped(PROLOGUE_BYTES + 15),
    "manifest": lambda: flipped(PROLOGUE_BYTES + BODY_HEAD_BYTES + 3),
    "payload": lambda: flipped(-TAG_BYTES - 1),
    "tag": lambda: flipped(-1),
    "polynomial": lambda: polynomial_added,
    "plain text": lambda: in_plain_text,
    "cut short": lambda: cut_short,
    "emptied": lambda: emptied,
    "another frame": lambda: relabelled(frame=7),
    "never the last": lambda: relabelled(is_last=False),
    "always the last": lambda: relabelled(is_last=True),
    "another attempt": lambda: relabelled(attempt=9),
    "another chunk": lambda: relabelled(chunk=99),
    "a later epoch": lambda: relabelled(epoch=9),
    "another transfer": lambda: relabelled(transfer=b"x" * 16),
    "another fleet": lambda: relabelled(fleet=b"x" * 16),
    "no route": lambda: relabelled(route=77),
    "earlier frame": of_an_earlier_frame,
    "held back": held_back,
    "withheld": lambda: withheld,
}


def objects_of() -> dict[str, bytes]:
    chooser = random.Random(5)
    sizes = [0, 1, 1000, MIB, 3 * MIB + 1]
    return {f"secret-key-{number}": chooser.randbytes(size) for number, size in enumerate(sizes)}


def infect(relay: Any, attack: Attack, turns: Iterator[bool]) -> list[bytes]:
    """Let the relay attack the frames of its turns; returns all that it sees."""
    original = relay.router.frame_received
    seen: list[bytes] = []

    def frame_received(link: Any, header: FrameHeader, sealed: memoryview) -> None:
        seen.append(bytes(sealed))
        sent = [(header, bytes(sealed))]
        if next(turns):
            sent = attack(header, bytearray(sealed))
        for other, body in sent:
            original(link, other, memoryview(body))

    relay.router.frame_received = frame_received
    return seen


@pytest.mark.parametrize("name", ATTACKS)
async def test_attacks_on_some_frames_change_nothing(fleet_of: Any, kit: Any, name: str) -> None:
    """The sink refuses the frame, and the chunk is sent again."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = objects_of()
    kit.fill(source, objects)
    routes = kit.route(0, "a", "r", "b")
    async with fleet_of(routes, ack_deadline_s=0.3, stall_deadline_s=20.0) as fleet:
        turns = (number in (1, 5) for number in itertools.count())
        seen = infect(fleet.service("r"), ATTACKS[name](), turns)
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
        status = await fleet.run(spec, is_encrypted=True)
        assert (status["state"], status["error"]) == ("succeeded", None)
    assert kit.content(destination) == objects
    everything = b"".join(seen)
    assert b"secret-key-" not in everything
    assert objects["secret-key-2"] not in everything


@pytest.mark.parametrize("name", ["payload", "polynomial", "plain text", "withheld"])
async def test_attacks_on_all_frames_end_in_a_failure(fleet_of: Any, kit: Any, name: str) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, objects_of())
    routes = kit.route(0, "a", "r", "b")
    async with fleet_of(routes, ack_deadline_s=0.2, stall_deadline_s=0.5) as fleet:
        infect(fleet.service("r"), ATTACKS[name](), itertools.repeat(True))
        status = await fleet.run(kit.copy_spec(source, destination), is_encrypted=True)
        assert status["state"] == "failed"
    assert kit.content(destination) == {}


async def test_without_encryption_the_same_relay_changes_objects(fleet_of: Any, kit: Any) -> None:
    """The attack is real: this is why a fleet encrypts."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {"key": b"\0" * 1000}
    kit.fill(source, objects)
    async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
        infect(fleet.service("r"), polynomial_added, itertools.repeat(True))
        status = await fleet.run(kit.copy_spec(source, destination))
        assert status["state"] == "succeeded"
    assert kit.content(destination) == {"key": b"\0" * 995 + POLYNOMIAL.to_bytes(5, "little")}


@pytest.mark.parametrize("is_encrypted", [True, False])
async def test_a_forged_receipt_acknowledges_nothing(
    fleet_of: Any, kit: Any, is_encrypted: bool
) -> None:
    """The relay keeps all frames, and says that they are written."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"key": b"body"})
    entry = EntryResult(ReceiptStatus.DURABLE, "etag", crc32c(b"body"), 4)
    receipt = Receipt(1, ReceiptStatus.DURABLE, entries=(entry,))
    routes = kit.route(0, "a", "r", "b")
    async with fleet_of(routes, ack_deadline_s=0.2, stall_deadline_s=0.5) as fleet:
        relay = fleet.service("r")

        def frame_received(link: Any, header: FrameHeader, sealed: memoryview) -> None:
            relay.router.send_receipt(seal_receipt(header.chunk_id, receipt))

        relay.router.frame_received = frame_received
        status = await fleet.run(kit.copy_spec(source, destination), is_encrypted=is_encrypted)
        assert status["state"] == ("failed" if is_encrypted else "succeeded")
    assert kit.content(destination) == {}


#: What an attack sends on in place of one receipt.
SentReceipts = list[tuple[ChunkId, bytes]]
ReceiptAttack = Callable[[ChunkId, bytes], SentReceipts]


def altered(place: int) -> ReceiptAttack:
    def attack(header: ChunkId, sealed: bytes) -> SentReceipts:
        body = bytearray(sealed)
        body[place] ^= 1
        return [(header, bytes(body))]

    return attack


def readdressed(**fields: Any) -> ReceiptAttack:
    return lambda header, sealed: [(replace(header, **fields), sealed)]


def of_an_earlier_chunk() -> ReceiptAttack:
    """Sends the first receipt again in place of each later one, under the later one's header."""
    first: list[bytes] = []

    def attack(header: ChunkId, sealed: bytes) -> SentReceipts:
        first.append(sealed)
        return [(header, first[0])]

    return attack


def in_another_order() -> ReceiptAttack:
    """Keeps a receipt until its next turn, and exchanges the two."""
    held: SentReceipts = []

    def attack(header: ChunkId, sealed: bytes) -> SentReceipts:
        late, held[:] = held[:], [] if held else [(header, sealed)]
        return [(header, sealed), *late] if late else []

    return attack


RECEIPT_ATTACKS: dict[str, Callable[[], ReceiptAttack]] = {
    "suite": lambda: altered(1),
    "incarnation": lambda: altered(2),
    "counter": lambda: altered(PROLOGUE_BYTES - 1),
    "body": lambda: altered(PROLOGUE_BYTES + 4),
    "tag": lambda: altered(-1),
    "cut short": lambda: lambda header, sealed: [(header, sealed[:-1])],
    "emptied": lambda: lambda header, sealed: [(header, b"")],
    "repeated": lambda: lambda header, sealed: [(header, sealed)] * 3,
    "earlier receipt": of_an_earlier_chunk,
    "another order": in_another_order,
    "withheld": lambda: lambda header, sealed: [],
    "another fleet": lambda: readdressed(fleet=b"x" * 16),
    "another transfer": lambda: readdressed(transfer=b"x" * 16),
    "a later epoch": lambda: readdressed(epoch=9),
    "another route": lambda: readdressed(route=1),
    "no route": lambda: readdressed(route=77),
    "another chunk": lambda: readdressed(chunk=99),
    "another attempt": lambda: readdressed(attempt=9),
}


def infect_receipts(relay: Any, attack: ReceiptAttack, turns: Iterator[bool]) -> None:
    """Let the relay attack the receipts of its turns."""
    original = relay.router.receipt_received

    def receipt_received(link: Any, header: ChunkId, sealed: memoryview) -> None:
        sent = [(header, bytes(sealed))]
        if next(turns):
            sent = attack(header, bytes(sealed))
        for other, body in sent:
            original(link, other, memoryview(body))

    relay.router.receipt_received = receipt_received


@pytest.mark.parametrize("name", RECEIPT_ATTACKS)
async def test_attacks_on_some_receipts_change_nothing(fleet_of: Any, kit: Any, name: str) -> None:
    """The source takes no such receipt, and sends the chunk again."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = objects_of()
    kit.fill(source, objects)
    routes = kit.route(0, "a", "r", "b"), kit.route(1, "a", "s", "b")
    async with fleet_of(*routes, ack_deadline_s=0.3, stall_deadline_s=20.0) as fleet:
        turns = (number in (0, 1) for number in itertools.count())
        infect_receipts(fleet.service("r"), RECEIPT_ATTACKS[name](), turns)
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
        status = await fleet.run(spec, is_encrypted=True)
        assert (status["state"], status["error"]) == ("succeeded", None)
    assert kit.content(destination) == objects


@pytest.mark.parametrize(
    "name", ["body", "tag", "emptied", "another transfer", "another route", "another chunk"]
)
async def test_attacks_on_all_receipts_end_in_a_failure(fleet_of: Any, kit: Any, name: str) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, objects_of())
    async with fleet_of(
        kit.route(0, "a", "r", "b"), ack_deadline_s=0.2, stall_deadline_s=0.5
    ) as fleet:
        infect_receipts(fleet.service("r"), RECEIPT_ATTACKS[name](), itertools.repeat(True))
        status = await fleet.run(kit.copy_spec(source, destination), is_encrypted=True)
        assert status["state"] == "failed"


async def test_repeated_frames_write_each_object_once(
    fleet_of: Any, kit: Any, wrap_stores: Callable[..., None]
) -> None:
    written: list[str] = []

    def put(original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        written.append(key)
        return original(key, *arguments, **more)

    wrap_stores(put=put)
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"key-{number}": b"body" for number in range(5)}
    kit.fill(source, objects)
    async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
        infect(fleet.service("r"), repeated, itertools.repeat(True))
        status = await fleet.run(kit.copy_spec(source, destination), is_encrypted=True)
        assert status["state"] == "succeeded"
    assert kit.content(destination) == objects
    assert sorted(key for key in written if key in objects) == sorted(objects)


async def test_a_new_lead_seals_with_new_subkeys(fleet_of: Any, kit: Any) -> None:
    """Both epochs of one transfer succeed, and a frame of the first is of no use in the second."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"first": b"1"})
    spec, transfer = kit.copy_spec(source, destination), "ab" * 16
    async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
        kept: list[tuple[FrameHeader, bytes]] = []
        incarnations: dict[int, set[bytes]] = {1: set(), 2: set()}

        def replay(header: FrameHeader, sealed: bytearray) -> Sent:
            earlier = kept[:1] if header.chunk_id.epoch == 2 else []
            kept.append((header, bytes(sealed)))
            incarnations[header.chunk_id.epoch].add(bytes(sealed[2:18]))
            again = [
                (replace(one, chunk_id=replace(one.chunk_id, epoch=2, chunk=77)), body)
                for one, body in earlier
            ]
            return [*earlier, *again, (header, bytes(sealed))]

        infect(fleet.service("r"), replay, itertools.repeat(True))
        await fleet.attach(transfer, source, destination, is_encrypted=True)
        await fleet.submit(transfer, spec)
        assert (await fleet.ended(transfer))["copied"] == 1
        kit.fill(source, {"second": b"2"})
        await fleet.attach(transfer, source, destination, epoch=2, is_encrypted=True)
        await fleet.submit(transfer, spec, epoch=2)
        status = await fleet.ended(transfer)
        assert (status["error"], status["state"]) == (None, "succeeded")
    assert kit.content(destination) == {"first": b"1", "second": b"2"}
    # Fresh for each attach: the counters begin at 0 again.
    assert incarnations[1]
    assert incarnations[2]
    assert incarnations[1].isdisjoint(incarnations[2])


async def test_a_sink_without_the_transfer_is_left_out(fleet_of: Any, kit: Any) -> None:
    """It has no key for its answer, and the source must not take that for damage."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"key-{number}": bytes(2 * MIB) for number in range(8)}
    kit.fill(source, objects)
    transfer = "ab" * 16
    async with fleet_of(kit.route(0, "a", "b"), kit.route(1, "a", "c")) as fleet:
        await fleet.attach(transfer, source, destination, is_encrypted=True)
        await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
        await fleet.service("c").endpoints.release(transfer, 1)
        status = await fleet.ended(transfer)
        assert (status["error"], status["copied"]) == (None, 8)
    assert kit.content(destination) == objects


async def test_forged_frames_do_not_make_a_sink_forget_what_it_writes(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    """Else the chunk would be sent and held again, beyond the limit of memory."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"key-{number}": bytes([number]) * (MIB // 2) for number in range(32)}
    kit.fill(source, objects)
    async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
        router = fleet.service("r").router
        original, forged = router.frame_received, 0

        def frame_received(link: Any, header: FrameHeader, sealed: memoryview) -> None:
            def forge() -> None:
                nonlocal forged
                forged += 1
                original(link, header, memoryview(body[:-1] + b"x"))

            body = bytes(sealed)
            original(link, header, memoryview(body))
            asyncio.get_running_loop().call_later(0.02, forge)

        router.frame_received = frame_received
        transfer = "ab" * 16
        await fleet.attach(transfer, source, destination, is_encrypted=True)
        await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
        sink = fleet.service("b").endpoints._sink
        await fleet.until(lambda: forged >= 8)
        assert sink.held_bytes >= len(sink._writes) * MIB > 0
        gate.open()
        assert (await fleet.ended(transfer))["error"] is None
    assert kit.content(destination) == objects


async def test_a_path_that_spoils_frames_is_left_for_an_honest_one(fleet_of: Any, kit: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"key-{number}": bytes([number]) * MIB for number in range(24)}
    kit.fill(source, objects)
    routes = kit.route(0, "a", "r", "b"), kit.route(1, "a", "s", "b")
    async with fleet_of(*routes, ack_deadline_s=0.5, stall_deadline_s=20.0) as fleet:
        infect(fleet.service("r"), flipped(-1), itertools.repeat(True))
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
        status = await fleet.run(spec, is_encrypted=True)
        assert (status["error"], status["copied"]) == (None, 24)
    assert kit.content(destination) == objects
