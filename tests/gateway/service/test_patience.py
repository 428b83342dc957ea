"""Stores that throttle without end: what ends the wait of a gateway for them."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from skyplane_gateway.common.errors import Throttled
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.config import MIB
from skyplane_gateway.selection.selector import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.wrappers.rate_limiter import Limits, RateLimiter
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

KEY = "ab" * 16


@dataclass
class ThrottlingStore:
    """A store of which one method always throttles, except for journals.

    Attributes:
        waiting: threads that wait before their next attempt, until they are cancelled.
    """

    store: Any
    method: str
    waiting: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.store, name)
        return (
            call if name != self.method else lambda key, *a, **b: self._refuse(call, key, *a, **b)
        )

    def _refuse(self, call: Any, key: str, *arguments: Any, **more: Any) -> Any:
        if JOURNAL_FOLDER in key:
            return call(key, *arguments, **more)
        raise Throttled("slow down")

    def pause(self, cancelled: threading.Event, seconds: float) -> bool:
        with self._lock:
            self.waiting += 1
        cancelled.wait()
        with self._lock:
            self.waiting -= 1
        return True


@pytest.fixture
def throttle(monkeypatch: pytest.MonkeyPatch) -> Callable[[StoreSpec, str], ThrottlingStore]:
    """`throttle(spec, "put")`: gateways open that bucket with a method that throttles."""

    def make(throttling: StoreSpec, method: str) -> ThrottlingStore:
        made = ThrottlingStore(open_store(throttling), method)
        limiter = RateLimiter(Limits(ceiling=math.inf, floor=1e9))

        def opened(spec: StoreSpec, credentials: Any = None) -> RetryingStore:
            if spec != throttling:
                return open_store(spec, credentials)
            store: Any = made
            return RetryingStore(store, limiter, pause=made.pause)

        monkeypatch.setattr("skyplane_gateway.transfer_sides.open_store", opened)
        return made

    return make


async def submit(fleet: Any, kit: Any, source: StoreSpec, destination: StoreSpec) -> None:
    await fleet.attach(KEY, source, destination)
    await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=MIB))


@pytest.mark.parametrize(
    ("side", "method", "threads"),
    [("sink", "put", 1), ("sink", "put_part", 3), ("source", "read", 3)],
)
async def test_a_cancel_ends_every_wait_for_a_store(
    side: str, method: str, threads: int, fleet_of: Any, kit: Any, throttle: Any
) -> None:
    """Also when every thread waits for it."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"small": b"1", "large": bytes(5 * MIB)})
    store = throttle(source if side == "source" else destination, method)
    async with fleet_of(kit.route(0, "a", "b"), store_threads=3) as fleet:
        await submit(fleet, kit, source, destination)
        await fleet.until(lambda: store.waiting >= threads)
        for node in ("a", "b"):
            await asyncio.to_thread(fleet.client(node).cancel, KEY)
        assert fleet.service("a").leads.transfer(KEY).status()["state"] == "cancelled"
        assert fleet.service("b").sink.held_bytes == 0
        assert (kit.uploads(destination), kit.journals(destination)) == ([], [])
        await fleet.until(lambda: store.waiting == 0)


async def test_a_gateway_that_ends_waits_for_no_store(
    fleet_of: Any, kit: Any, throttle: Any
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"large": bytes(5 * MIB)})
    store = throttle(destination, "put_part")
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        await submit(fleet, kit, source, destination)
        await fleet.until(lambda: store.waiting > 0)
        await fleet.service("b").close()
        await fleet.until(lambda: store.waiting == 0)


async def test_connections_get_the_write_timeout_of_the_configuration(
    fleet_of: Any, kit: Any
) -> None:
    async with fleet_of(kit.route(0, "a", "b"), write_timeout_s=7.0) as fleet:
        (route,) = fleet.service("a").router._routes.values()
        assert {link._write_timeout_s for link in route.downstream_links} == {7.0}
