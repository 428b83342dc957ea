"""Random bits of a whole transfer's streams are flipped: never data, never a hang."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.gateway.wire_lab import PLACES, Place, all_at_once, run_attacked
from tests.gateway.wire_proxy import Hop, Message

pytestmark = pytest.mark.usefixtures("small_frames")

#: A stream of a hop: all bytes of its connections that go to one gateway.
Stream = tuple[Hop, int]
#: In one run.
FLIPS = 8


class Counted:
    """Forwards all messages and counts the bytes of each stream."""

    def __init__(self) -> None:
        self.sizes: Counter[Stream] = Counter()

    def __call__(self, message: Message) -> None:
        self.sizes[stream_of(message)] += len(message.data)
        message.forward()


class Flips:
    """Flips bits at places of each stream."""

    def __init__(self, sizes: Counter[Stream], rng: random.Random) -> None:
        self._passed: Counter[Stream] = Counter()
        streams = sorted(sizes)
        weights = [sizes[stream] for stream in streams]
        #: Stream, byte in it, bit in that.
        self._places = {
            (stream, rng.randrange(sizes[stream])): 1 << rng.randrange(8)
            for stream in rng.choices(streams, weights, k=FLIPS)
        }
        self.times = 0

    def __call__(self, message: Message) -> None:
        stream, data = stream_of(message), bytearray(message.data)
        begin = self._passed[stream]
        self._passed[stream] += len(data)
        for (owner, place), bit in self._places.items():
            if owner == stream and begin <= place < begin + len(data):
                data[place - begin] ^= bit
                self.times += 1
        message.pipe.send(bytes(data))


def stream_of(message: Message) -> Stream:
    return message.pipe.hop, message.pipe.connection.pipes.index(message.pipe)


async def flip(fleet_of: Any, kit: Any, place: Place, seeds: range) -> None:
    honest = Counted()
    outcome = await run_attacked(fleet_of, kit, honest, place=place, from_start=True)
    assert outcome.state == "succeeded"
    flipped: list[int] = []

    async def run(seed: int) -> None:
        attack = Flips(honest.sizes, random.Random(seed))
        await run_attacked(
            fleet_of, kit, attack, place=place, from_start=True, stall_deadline_s=1.0
        )
        flipped.append(attack.times)

    await all_at_once((f"with seed {seed}", run(seed)) for seed in seeds)
    # A place behind the end of a broken connection may never come.
    assert sum(flipped) > FLIPS * len(seeds) / 2


@pytest.mark.parametrize(("place", "seeds"), [("lower", range(15)), ("relay", range(15))])
async def test_flipped_bits(fleet_of: Any, kit: Any, place: str, seeds: range) -> None:
    await flip(fleet_of, kit, PLACES[place], seeds)


@pytest.mark.soak
@pytest.mark.parametrize("place", PLACES)
async def test_many_flipped_bits(fleet_of: Any, kit: Any, place: str) -> None:
    await flip(fleet_of, kit, PLACES[place], range(1000, 2000))
