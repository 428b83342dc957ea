"""What goes wrong in a transfer comes out as a clear failure that leaves nothing open."""

from __future__ import annotations

import asyncio
import errno
import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stranger import answering
from tests.gateway.service.in_process_fleet import (
    buckets,
    content,
    copy_spec,
    fill,
    journals,
    named_uploads,
    route,
    uploads,
)

from skyplane_gateway.common.errors import (
    GatewayLost,
    StoreUnavailable,
    Throttled,
)
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.config import MIB
from skyplane_gateway.control import client as client_module
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.local.error_mapping import translate
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter, RateLimits
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

# What goes wrong in a transfer comes out as a clear failure that leaves nothing open.


async def vanish(fleet: Any, node: str) -> None:
    """The gateway is gone as after kill -9: nobody listens, every connection is broken."""
    gateway = fleet.gateways[node]
    gateway.keeper.cancel()
    gateway.data.close()
    gateway.service.route_is_down = lambda number, loss: None
    for way in gateway.service.router._routes.values():
        for link in way.links:
            link._transport.abort()
    gateway.service.router.close()
    await gateway.close_control()


async def test_a_full_destination_fails_the_transfer_and_a_resume_completes_it(
    fleet_of: Any, wrap_stores: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be written, the journal included, until somebody frees some space."""
    is_full, has_ended = threading.Event(), threading.Event()
    is_full.set()

    def put(original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        if is_full.is_set() and JOURNAL_FOLDER not in key:
            has_ended.wait(60)
        if is_full.is_set() and (JOURNAL_FOLDER not in key or key in written):
            raise translate(OSError(errno.ENOSPC, "No space left on device"), f"writing {key}")
        written.add(key)
        return original(key, *arguments, **more)

    written: set[str] = set()

    source, destination = buckets()
    objects = {f"o{i}": bytes([i]) * 100 for i in range(6)}
    fill(source, objects)
    wrap_stores(put=put)
    spec, transfer = copy_spec(source, destination), "77" * 16
    async with fleet_of() as fleet:
        await fleet.begin(transfer, spec)
        status = await fleet.ended(transfer)
        has_ended.set()
        assert (status["state"], status["error"]["is_permanent"]) == ("failed", False)
        assert "No space left" in status["error"]["message"]
        counts = [status[name] for name in ("objects", "copied", "failed", "unfinished")]
        assert counts == [6, 0, 0, 6]
        is_full.clear()
        await fleet.begin(transfer, spec, epoch=2)
        status = await fleet.ended(transfer)
        assert (status["error"], status["copied"], status["unfinished"]) == (None, 6, 0)
        assert content(destination) == objects


PATHS: dict[str, list[tuple[str, ...]]] = {
    "relay": [("a", "r", "b"), ("a", "c")],
    "source": [("a", "b"), ("c", "b")],
    "sink": [("a", "b"), ("a", "c")],
}


@pytest.mark.parametrize("role", ["source", "sink"])
async def test_a_gateway_whose_address_was_reused_counts_as_lost(
    role: str, fleet_of: Any, tmp_path: Path
) -> None:
    """A dead gateway whose address went to another machine was a permanent failure."""

    source, destination = buckets()
    objects = {f"o{i}": bytes([i]) * (3 * MIB) for i in range(6)}
    fill(source, objects)
    transfer, lost = "77" * 16, {"source": "c", "sink": "b"}[role]
    routes = [route(number, *nodes) for number, nodes in enumerate(PATHS[role])]
    with answering(("127.0.0.1", 0), tmp_path) as address:
        async with fleet_of(*routes) as fleet:
            await fleet.attach(transfer, source, destination)
            known = fleet.topology()
            elsewhere = {**known.control_addresses, lost: address}
            fleet.service("a").apply_topology(replace(known, control_addresses=elsewhere))
            await fleet.submit(transfer, copy_spec(source, destination, chunk_bytes=MIB))
            status = await fleet.ended(transfer)
            assert status["error"] is None
            assert set(status[f"lost_{role}s"]) == {lost}
            assert content(destination) == objects


async def test_without_any_path_left_the_transfer_fails_clearly(fleet_of: Any, gate: Any) -> None:
    source, destination = buckets({f"o{i}": bytes(3 * MIB) for i in range(6)})
    transfer = "77" * 16
    routes = route(0, "a", "r", "b")
    async with fleet_of(routes, over_tls=True, ack_deadline_s=0.5) as fleet:
        await fleet.begin(transfer, copy_spec(source, destination, chunk_bytes=MIB))
        await fleet.until(lambda: gate.waiting > 0)
        await vanish(fleet, "r")
        gate.open()
        status = await fleet.ended(transfer)
        assert status["state"] == "failed"
        assert status["error"]["code"] == "gateway-lost"
        assert not status["error"]["is_permanent"]
        assert "a -> r -> b" in status["error"]["message"]
        assert list(status["routes_down"]) == ["0"]
        # Open uploads are kept, and the journal names them, for a resume.
        assert status["open_uploads"] == []
        assert set(uploads(destination)) <= named_uploads(destination)
        with pytest.raises(GatewayLost, match="no path is up"):
            await fleet.submit(transfer, copy_spec(source, destination), epoch=2)
        for node in ("a", "b"):
            await asyncio.to_thread(fleet.client(node).cancel, transfer)
        assert (uploads(destination), journals(destination)) == ([], [])


async def test_a_submit_is_taken_while_one_path_is_up(fleet_of: Any) -> None:
    source, destination = buckets()
    objects = {f"o{i}": bytes([i]) * MIB for i in range(6)}
    fill(source, objects)
    routes = [route(0, "a", "r", "b"), route(1, "a", "c")]
    async with fleet_of(*routes, over_tls=True) as fleet:
        transfer = "78" * 16
        await fleet.attach(transfer, source, destination)
        for lost in ("r", "b"):
            await vanish(fleet, lost)
        await fleet.until(lambda: fleet.service("a").router.loss(0))
        await fleet.submit(transfer, copy_spec(source, destination))
        status = await fleet.ended(transfer)
        assert status["error"] is None
        assert status["delivered_bytes"] == {"0": 0, "1": 6 * MIB}
        assert content(destination) == objects


async def test_a_fleet_that_ends_in_good_order_warns_of_nothing(
    fleet_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet_of(route(0, "a", "r", "b"), over_tls=True) as fleet:
        await fleet.gateways["a"].close()
        await fleet.until(lambda: fleet.service("b").router.loss(0))
        assert "a is ending" in str(fleet.service("b").router.loss(0))
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


async def test_a_gateway_that_is_lost_is_warned_of(
    fleet_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def is_warned() -> bool:
        warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
        return any("the connection to a broke" in message for message in warned)

    async with fleet_of(route(0, "a", "r", "b")) as fleet:
        (way,) = fleet.service("r").router._routes.values()
        for link in way.upstream_links:
            link._transport.abort()
        # Not for the loss itself: the path is built again within milliseconds.
        await fleet.until(is_warned)


# A destination that never responds: the error names the store, and no gateway counts as lost.


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        # The writing of chunks: no receipt comes by any path.
        ("put_part", "chunks waiting for it: [1-9]"),
        # A verb of the lead, which must not take the sink for lost.
        ("create_upload", "no answer of the store .* to 'create' within 0.2 s"),
    ],
)
@pytest.mark.parametrize("nodes", [("a", "b"), ("a",)])
async def test_a_destination_that_hangs_is_named(
    verb: str,
    says: str,
    nodes: tuple[str, ...],
    fleet_of: Any,
    wrap_stores: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, destination = buckets({f"o{number}": bytes(2 * MIB) for number in range(2)})
    over = threading.Event()
    # Threads enough: those that call the store stay until the end.
    settings = {"ack_deadline_s": 0.3, "stall_deadline_s": 0.6, "store_threads": 32}

    def hang(*_: Any, **__: Any) -> None:
        over.wait(60)
        raise StoreUnavailable("it never answered")

    wrap_stores(**{verb: hang})
    monkeypatch.setattr(client_module, "_VERB_TIMEOUT_S", 5.2)

    async with fleet_of(route(0, *nodes), **settings) as fleet:
        transfer = "58" * 16
        await fleet.begin(transfer, copy_spec(source, destination, chunk_bytes=MIB))
        try:
            status = await fleet.ended(transfer)
        finally:
            over.set()
        assert status["state"] == "failed"
        assert status["lost_sinks"] == {}
        error = status["error"]
        assert error["code"] in ("store-unavailable", "objects-failed")
        assert f"memory://{destination.bucket}" in error["message"]
        assert re.search(says, error["message"])


# Stores that throttle without end: what ends the wait of a gateway for them.


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
        limiter = RateLimiter(RateLimits(ceiling=math.inf, floor=1e9))

        def opened(spec: StoreSpec, credentials: Any = None) -> RetryingStore:
            if spec != throttling:
                return open_store(spec, credentials)
            store: Any = made
            return RetryingStore(store, limiter, pause=made.pause)

        monkeypatch.setattr("skyplane_gateway.transfer_sides.open_store", opened)
        return made

    return make


async def submit(fleet: Any, source: StoreSpec, destination: StoreSpec) -> None:
    await fleet.begin(KEY, copy_spec(source, destination, chunk_bytes=MIB))


@pytest.mark.parametrize(
    ("side", "method", "threads"),
    [("sink", "put", 1), ("sink", "put_part", 3), ("source", "read", 3)],
)
async def test_a_cancel_ends_every_wait_for_a_store(
    side: str, method: str, threads: int, fleet_of: Any, throttle: Any
) -> None:
    """Also when every thread waits for it."""
    source, destination = buckets({"small": b"1", "large": bytes(5 * MIB)})
    store = throttle(source if side == "source" else destination, method)
    async with fleet_of(store_threads=3) as fleet:
        await submit(fleet, source, destination)
        await fleet.until(lambda: store.waiting >= threads)
        for node in ("a", "b"):
            await asyncio.to_thread(fleet.client(node).cancel, KEY)
        assert fleet.service("a").leads.transfer(KEY).status()["state"] == "cancelled"
        assert fleet.service("b").sink.held_bytes == 0
        assert (uploads(destination), journals(destination)) == ([], [])
        await fleet.until(lambda: store.waiting == 0)


async def test_a_gateway_that_ends_waits_for_no_store(fleet_of: Any, throttle: Any) -> None:
    source, destination = buckets({"large": bytes(5 * MIB)})
    store = throttle(destination, "put_part")
    async with fleet_of() as fleet:
        await submit(fleet, source, destination)
        await fleet.until(lambda: store.waiting > 0)
        await fleet.service("b").close()
        await fleet.until(lambda: store.waiting == 0)


async def test_connections_get_the_write_timeout_of_the_configuration(fleet_of: Any) -> None:
    async with fleet_of(write_timeout_s=7.0) as fleet:
        (way,) = fleet.service("a").router._routes.values()
        assert {link._write_timeout_s for link in way.downstream_links} == {7.0}
