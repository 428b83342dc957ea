"""What keeps the gateways of a fleet alive: the wiring of leases, keeper and lead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.memory_store import MemoryStore

from skyplane_gateway.common.objects import ObjectInfo

KEY = "ab" * 16


async def test_a_listing_without_matches_is_progress(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of keys that the filters leave out take longer than any lease."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    steps = threading.Semaphore(0)
    real = MemoryStore.list

    def slowly(store: MemoryStore, prefix: str, **more: Any) -> Iterator[ObjectInfo]:
        if store.spec.bucket != source.bucket:
            yield from real(store, prefix, **more)
            return
        for page in range(3):
            for number in range(1000):
                yield ObjectInfo(f"unwanted{page}{number:03}", 1, "e", 0.0)
            assert steps.acquire(timeout=20)

    monkeypatch.setattr(MemoryStore, "list", slowly)

    async with fleet_of(kit.route(1, "a", "b")) as fleet:
        spec = kit.copy_spec(source, destination, include=("wanted",), allow_empty=True)
        await fleet.attach(KEY, source, destination)
        await fleet.submit(KEY, spec)
        lead = fleet.service("a").leads.transfer(KEY)
        for looked_at in (1000, 2000, 3000):
            await fleet.until(lambda wanted=looked_at: lead.progress()[0] == wanted)
            steps.release()
        assert (await fleet.ended(KEY))["state"] == "succeeded"


async def test_a_poll_renews_the_lead_alone_and_a_submit_the_whole_fleet(
    fleet_of: Any, kit: Any
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"a": b"x"})

    settings = {"start_within_s": 900.0, "lease_s": 60.0}
    async with fleet_of(kit.route(1, "a", "r", "b"), **settings) as fleet:

        def left_s(node: str) -> float:
            remaining: float = fleet.service(node).lease.remaining_s
            return remaining

        assert all(800 < left_s(node) <= 900 for node in ("a", "r", "b"))
        await fleet.attach(KEY, source, destination)
        assert left_s("a") > 800
        await fleet.submit(KEY, kit.copy_spec(source, destination))
        assert all(left_s(node) <= 60 for node in ("a", "r", "b"))
        await fleet.ended(KEY)
        for node in ("a", "r", "b"):
            fleet.service(node).lease.renew(5.0)
        await asyncio.to_thread(fleet.client("a").transfer_status, KEY, renew=False)
        assert left_s("a") <= 5
        await asyncio.to_thread(fleet.client("a").transfer_status, KEY)
        assert left_s("a") > 5
        assert left_s("b") <= 5
        fleet.service("a").lease.renew(5.0)
        await asyncio.to_thread(fleet.client("a").report, KEY)
        assert left_s("a") > 5, "a report may have more pages than a lease has time for"
        assert left_s("b") <= 5
