"""Which objects the store copies itself, and how many parts at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from skyplane_gateway.common.errors import (
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.common.objects import (
    MIB,
    ObjectInfo,
    PartInfo,
    StoreCapabilities,
    StoreSpec,
    time_pin,
)
from skyplane_gateway.common.schema import encode
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.server_side_copies import ServerSideCopies
from skyplane_gateway.lead.sink_pool import SinkPeer, SinkPool
from skyplane_gateway.stores.copy_source import CopySource

STORE: Final = StoreSpec("memory", "b")
SPEC: Final = TransferSpec(
    STORE, STORE, "", "to/", chunk_bytes=8 * MIB, whole_bytes=64 * MIB, server_side_copy=True
)
CAN: Final = StoreCapabilities(
    trusts_checksum=True,
    min_part_bytes=5 * MIB,
    max_part_bytes=512 * MIB,
    max_parts=100,
    max_object_bytes=1 << 40,
    server_side_copy="ranges",
)
LARGE: Final = ObjectInfo("k", 100 * MIB, "e", 0.0, crc32c=7)


class Sinks:
    """Sinks that answer one turn of the event loop later."""

    def __init__(self, count: int) -> None:
        self.in_flight = self.most = 0
        peers = [SinkPeer(f"s{number}", self.call) for number in range(count)]
        self.pool = SinkPool(peers, stall_deadline_s=240.0, retries=Retries(random.Random(1)))

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        return encode(PartInfo(arguments["number"], "p", arguments["size_bytes"]))


def copies_of(
    spec: TransferSpec = SPEC,
    source: StoreCapabilities = CAN,
    destination: StoreCapabilities = CAN,
    sinks: Sinks | None = None,
) -> ServerSideCopies:
    pool = (sinks or Sinks(1)).pool
    return ServerSideCopies(spec, pool, source=source, destination=destination)


async def test_objects_larger_than_a_part_whose_checksum_is_known() -> None:
    copies = copies_of()
    part = SPEC.chunk_bytes
    assert copies.copies(LARGE)
    assert copies.copies(replace(LARGE, size_bytes=part + 1))
    assert not copies.copies(replace(LARGE, size_bytes=part))
    assert not copies.copies(replace(LARGE, crc32c=None))
    assert not copies.copies(replace(LARGE, etag=time_pin(1.0, LARGE.size_bytes)))
    assert copies.part_bytes(LARGE.size_bytes, part) == part


async def test_a_store_that_copies_whole_objects_copies_those_that_are_not_sent_whole() -> None:
    copies = copies_of(destination=replace(CAN, server_side_copy="objects"))
    assert copies.copies(LARGE)
    assert not copies.copies(replace(LARGE, size_bytes=SPEC.whole_bytes))
    assert copies.part_bytes(LARGE.size_bytes, SPEC.chunk_bytes) == LARGE.size_bytes


@pytest.mark.parametrize(
    "off",
    [
        {"spec": replace(SPEC, server_side_copy=False)},
        {"source": replace(CAN, trusts_checksum=False)},
        {"destination": replace(CAN, server_side_copy="none")},
    ],
)
async def test_nothing_is_copied_where_an_end_cannot(off: dict[str, Any]) -> None:
    assert not copies_of(**off).may_copy(LARGE)


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [
        (PermissionDenied("no"), True),
        (StoreUnavailable("500"), True),
        (Throttled("slow down"), False),
        (NotFound("gone"), False),
        (PreconditionFailed("changed"), False),
    ],
)
async def test_after_a_refusal_no_object_is_copied(error: StoreError, is_refusal: bool) -> None:
    copies = copies_of()
    assert copies.refused(error) is is_refusal
    assert copies.copies(LARGE) is not is_refusal
    assert bool(copies.refusal) is is_refusal


@pytest.mark.parametrize(("count", "most"), [(1, 8), (2, 16), (40, 32)])
async def test_the_parts_that_are_copied_at_once_are_limited(count: int, most: int) -> None:
    sinks = Sinks(count)
    copies = copies_of(sinks=sinks)
    source = CopySource(STORE, "k", "e", 0, 1)
    async with asyncio.TaskGroup() as group:
        for number in range(1, 101):
            group.create_task(copies.copy_part("to/k", "u", number, source))
    assert sinks.most == most
