"""Stores that throttle for ever, before real gateways: what waits, and what ends the wait."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from skyplane_gateway.config import MIB
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.control.tls import client_context
from skyplane_gateway.errors import StaleEpoch, Throttled
from skyplane_gateway.identifiers import gateway_uri
from skyplane_gateway.objects import StoreSpec
from skyplane_gateway.selection.rules import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.memory import MemoryStore
from skyplane_gateway.stores.wrappers.rate_limiter import Limits, RateLimiter
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

SMALL = {"assembly_mib": 8, "readers": 3, "store_threads": 4}
KEY = "ab" * 16


@dataclass
class Storm:
    """Methods of one bucket that throttle; who waits for it waits until he is told to stop.

    Attributes:
        throttled: those methods; none any more once it is emptied.
        waiting: how many wait at this moment.
    """

    throttled: set[str] = field(default_factory=set)
    waiting: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pause(self, ended: threading.Event, seconds: float) -> bool:
        with self._lock:
            self.waiting += 1
        # As `ended.wait` for ever, but for the end of the storm.
        while not ended.wait(0.01) and not self._over.is_set():
            pass
        with self._lock:
            self.waiting -= 1
        return ended.is_set()

    def end(self) -> None:
        self.throttled.clear()
        self._over.set()


class _Throttling:
    def __init__(self, store: Any, storm: Storm) -> None:
        self._store = store
        self._storm = storm

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in self._storm.throttled:
            return call

        def refuse(key: str, *arguments: Any, **more: Any) -> Any:
            if JOURNAL_FOLDER in key:
                return call(key, *arguments, **more)
            raise Throttled("slow down")

        return refuse


@pytest.fixture
def storm_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Storm]:
    """`storm_at(spec, "put", ...)`: a bucket whose methods throttle."""

    def make(stormy: StoreSpec, *methods: str) -> Storm:
        storm = Storm(set(methods))
        # The rate is not what these tests are about.
        limiter = RateLimiter(Limits(ceiling=math.inf, floor=1e9))
        monkeypatch.setattr("skyplane_gateway.stores.wrappers.rate_limiter._THROTTLING_S", 1e9)

        def opened(spec: StoreSpec, credentials: Any = None) -> RetryingStore:
            store: Any = open_store(spec, credentials)
            if spec != stormy:
                return RetryingStore(store, RateLimiter())
            return RetryingStore(_Throttling(store, storm), limiter, pause=storm.pause)

        monkeypatch.setattr("skyplane_gateway.endpoints.open_store", opened)
        return storm

    return make


async def submitted(fleet: Any, kit: Any, source: StoreSpec, destination: StoreSpec) -> None:
    await fleet.attach(KEY, source, destination)
    await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=MIB))


@pytest.mark.parametrize(
    ("side", "method"), [("sink", "put"), ("sink", "put_part"), ("source", "read")]
)
def test_a_cancel_ends_every_wait_for_a_store(
    side: str, method: str, fleet_of: Any, kit: Any, storm_at: Callable[..., Storm]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"small": b"1", "large": bytes(5 * MIB)})
        storm = storm_at(source if side == "source" else destination, method)
        # No thread is left to let go of the store.
        settings = {**SMALL, "store_threads": 3}
        many = 3 if method != "put" else 1
        async with fleet_of(kit.route(0, "a", "b"), **settings) as fleet:
            await submitted(fleet, kit, source, destination)
            await fleet.until(lambda: storm.waiting >= many)
            for node in ("a", "b"):
                await asyncio.to_thread(fleet.client(node).cancel, KEY)
            assert fleet.service("a").leads.transfer(KEY).status()["state"] == "cancelled"
            assert fleet.service("b").sink.held_bytes == 0
            assert (kit.uploads(destination), kit.journals(destination)) == ([], [])
            await fleet.until(lambda: storm.waiting == 0)

    asyncio.run(scenario())


def test_a_sink_ends_its_waits_and_then_clears_up(
    fleet_of: Any, kit: Any, storm_at: Callable[..., Storm]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"large": bytes(5 * MIB)})
        storm = storm_at(destination, "put_part")
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await submitted(fleet, kit, source, destination)
            await fleet.until(lambda: storm.waiting > 0)
            assert kit.uploads(destination) == ["large"]
            await asyncio.to_thread(fleet.client("b").cancel, KEY)
            assert (kit.uploads(destination), kit.journals(destination)) == ([], [])
            await asyncio.to_thread(fleet.client("a").cancel, KEY)

    asyncio.run(scenario())


def test_a_gateway_that_ends_waits_for_no_store(
    fleet_of: Any, kit: Any, storm_at: Callable[..., Storm]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"large": bytes(5 * MIB)})
        storm = storm_at(destination, "put_part")
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await submitted(fleet, kit, source, destination)
            await fleet.until(lambda: storm.waiting > 0)
            await fleet.service("b").close()
            await fleet.until(lambda: storm.waiting == 0)

    asyncio.run(scenario())


def test_a_sink_says_which_chunks_wait_for_its_store(
    fleet_of: Any, kit: Any, storm_at: Callable[..., Storm]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"large": bytes(3 * MIB)})
        storm = storm_at(destination, "put_part")
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination)
            ends = fleet.service("b").endpoints
            assert await ends.store_verb(KEY, 1, "waiting", {}) == {"chunks": []}
            assert not ends.attached()[KEY]["is_used"]
            await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=MIB))
            await fleet.until(lambda: storm.waiting == 3)
            answer = await ends.store_verb(KEY, 1, "waiting", {})
            assert sorted(answer["chunks"]) == [[1, 1], [2, 1], [3, 1]]
            with pytest.raises(StaleEpoch):
                await ends.store_verb(KEY, 0, "waiting", {})
            storm.end()
            status = await fleet.ended(KEY)
            assert (status["state"], status["resent"]) == ("succeeded", 0)

    asyncio.run(scenario())


def test_a_source_says_which_chunks_wait_for_its_store(
    fleet_of: Any, kit: Any, storm_at: Callable[..., Storm]
) -> None:
    """Those included that wait for a reader, since the readers wait."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"large": bytes(5 * MIB)})
        storm = storm_at(source, "read")
        async with fleet_of(kit.route(0, "a", "b"), kit.route(1, "c", "b"), **SMALL) as fleet:
            await submitted(fleet, kit, source, destination)
            await fleet.until(lambda: storm.waiting > 0)
            # As a lead asks: the first source is one.
            context = client_context(fleet.service("a").config)
            port = fleet.gateways["a"].control_port
            lead = ControlClient("127.0.0.1", port, context, gateway_uri(fleet.key, "a"))
            pending = fleet.service("a").endpoints.sources[KEY]._pending
            await fleet.until(lambda: bool(pending))
            answer = await asyncio.to_thread(lead.waiting, KEY, 1)
            assert sorted(map(tuple, answer["chunks"])) == sorted(pending)
            storm.end()
            status = await fleet.ended(KEY)
            assert (status["state"], status["resent"]) == ("succeeded", 0)
            assert (await asyncio.to_thread(lead.waiting, KEY, 1)) == {"chunks": []}

    asyncio.run(scenario())


def test_a_verb_is_answered_before_its_lead_gives_the_sink_up(
    fleet_of: Any, kit: Any, storm_at: Callable[..., Storm], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many threads wait for the store: who has no turn is told so."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        storm = storm_at(destination, "head")
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination)
            ends = fleet.service("b").endpoints
            # Pauses end with the storm alone here, so these keep all the threads.
            stuck = [
                asyncio.create_task(ends.store_verb(KEY, 1, "head", {"key": "k"}))
                for _ in range(SMALL["store_threads"])
            ]
            await fleet.until(lambda: storm.waiting == SMALL["store_threads"])
            monkeypatch.setattr("skyplane_gateway.endpoints._THROTTLE_TIMEOUT_S", 0.0)
            late = asyncio.create_task(ends.store_verb(KEY, 1, "head", {"key": "k"}))
            # What asks no store is answered meanwhile.
            assert "capabilities" in await ends.store_verb(KEY, 1, "describe", {})
            storm.end()
            with pytest.raises(Throttled, match="no turn"):
                await late
            await asyncio.gather(*stuck, return_exceptions=True)

    asyncio.run(scenario())


def test_an_attach_bears_a_store_that_throttles(
    fleet_of: Any, kit: Any, storm_at: Callable[..., Storm], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyplane_gateway.endpoints._THROTTLE_TIMEOUT_S", 0.0)

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"1"})
        storm = storm_at(destination, "check")
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(KEY, source, destination)
            assert set(fleet.service("b").endpoints.destinations) == {KEY}
            storm.end()

    asyncio.run(scenario())


def test_the_deadlines_of_the_configuration_hold(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"1"})
        settings = {"ack_deadline_s": 30.0, "stall_deadline_s": 77.0, "write_timeout_s": 7.0}
        async with fleet_of(kit.route(0, "a", "b"), **settings) as fleet:
            (route,) = fleet.service("a").router._routes.values()
            assert {link._write_timeout_s for link in route.downstream_links} == {7.0}
            await submitted(fleet, kit, source, destination)
            lead = fleet.service("a").leads.transfer(KEY)
            assert lead._courier._stall_deadline_s == lead._sinks._stall_deadline_s == 77.0
            await fleet.ended(KEY)

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["list", "head"])
def test_a_source_that_never_answers_ends_the_transfer(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Its lead waited for a listing, or for the version of an object, without an end."""
    answers = threading.Event()
    plain = getattr(MemoryStore, method)
    deadlines = {"ack_deadline_s": 0.2, "stall_deadline_s": 0.4}

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"o": bytes(3 << 20)})

        def hang(store: MemoryStore, *arguments: Any, **more: Any) -> Any:
            if store.spec.bucket == source.bucket:
                answers.wait()
            return plain(store, *arguments, **more)

        monkeypatch.setattr(MemoryStore, method, hang)
        async with fleet_of(kit.route(0, "a", "b"), **{**SMALL, **deadlines}) as fleet:
            await fleet.attach(KEY, source, destination)
            await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=1 << 20))
            try:
                status = await fleet.ended(KEY)
            finally:
                answers.set()
            error = status["error"]
            assert (error["code"], error["is_permanent"]) == ("store-unavailable", False)
            assert "has not answered" in error["message"]

    asyncio.run(scenario())
