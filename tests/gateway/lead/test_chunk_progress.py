"""What has arrived of the chunks in flight, by the answers of their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from skyplane_gateway.common.errors import GatewayUnreachable
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.lead.chunk_progress import ChunkProgress
from skyplane_gateway.lead.in_flight import Attempt, InFlight
from skyplane_gateway.lead.sink_pool import SinkPeer
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkState, RangeOrder

MIB = 1 << 20
REMOTE = {"s3": StoreSpec("s3", "a"), "gcs": StoreSpec("gcs", "b"), "file": StoreSpec("file", "/")}


@dataclass
class Ends:
    """A source and a sink: how much of which chunk they have."""

    read: list[tuple[int, int, int]] = field(default_factory=list)
    written: list[tuple[int, int, int]] = field(default_factory=list)
    asked: int = 0
    error: Exception | None = None

    async def chunks(self) -> list[ChunkState]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return [ChunkState(*row, is_waiting=False) for row in self.read]

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert verb == "chunks"
        return {"chunks": [[*row, False] for row in self.written]}


def flying(in_flight: InFlight, chunk: int, mib: int = 16) -> Attempt:
    order = ChunkOrder(chunk, 1, 0, "part", (RangeOrder("k", "e", 0, mib * MIB, "d"),))
    attempt = Attempt(order, 0.0, asyncio.get_running_loop().create_future())
    in_flight.add(attempt)
    return attempt


def progress_of(ends: Ends, in_flight: InFlight, source: str, sink: str) -> ChunkProgress:
    spec = TransferSpec(REMOTE[source], REMOTE[sink], "", "")
    return ChunkProgress(spec, in_flight, [cast(Any, ends)], [SinkPeer("b", ends.call)])


async def looked(progress: ChunkProgress) -> int:
    """A look asks, and the next one has the answers."""
    await asyncio.sleep(1.0)
    progress.moving_bytes()
    await asyncio.sleep(0.1)
    return progress.moving_bytes()


@pytest.mark.parametrize(
    ("source", "sink", "mib"),
    [("s3", "gcs", 6.0), ("s3", "file", 8.0), ("file", "s3", 4.0), ("file", "file", 8.0)],
)
async def test_reading_and_writing_count_unless_the_end_is_a_file_system(
    source: str, sink: str, mib: float
) -> None:
    ends, in_flight = Ends([(7, 1, 8 * MIB)], [(7, 1, 4 * MIB)]), InFlight()
    flying(in_flight, 7)
    progress = progress_of(ends, in_flight, source, sink)
    assert progress.moving_bytes() == 0
    assert await looked(progress) == mib * MIB


async def test_only_chunks_in_flight_count_and_none_with_more_than_it_has() -> None:
    ends = Ends([(1, 1, 99 * MIB), (2, 1, 3 * MIB), (3, 1, MIB), (2, 2, MIB)])
    in_flight = InFlight()
    ended = flying(in_flight, 1)
    flying(in_flight, 2)
    progress = progress_of(ends, in_flight, "s3", "file")
    assert await looked(progress) == 19 * MIB
    in_flight.remove(ended)  # Its receipt came: it counts as delivered from now on.
    assert progress.moving_bytes() == 3 * MIB


async def test_ends_are_asked_once_a_second_and_only_while_chunks_fly() -> None:
    ends, in_flight = Ends(), InFlight()
    progress = progress_of(ends, in_flight, "s3", "s3")
    for _ in range(50):
        progress.moving_bytes()
        await asyncio.sleep(0.1)
    assert ends.asked == 0
    flying(in_flight, 1)
    for _ in range(50):
        progress.moving_bytes()
        await asyncio.sleep(0.1)
    assert ends.asked == pytest.approx(5, abs=1)


async def test_an_end_that_does_not_answer_changes_nothing() -> None:
    ends, in_flight = Ends([(1, 1, MIB)]), InFlight()
    flying(in_flight, 1)
    progress = progress_of(ends, in_flight, "s3", "file")
    assert await looked(progress) == MIB
    ends.error = GatewayUnreachable("no answer")
    assert await looked(progress) == MIB
    progress.close()
