"""Fleets of one test, by fixture."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import SMALL, Gate, InProcessFleet, route
from tests.gateway.wire_proxy import WireProxy

from skyplane_gateway.config import Route
from skyplane_gateway.lead import backoff
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries go on at once: how long they pause is not what these tests are about."""
    monkeypatch.setattr(backoff, "POLICY", replace(backoff.POLICY, first_pause_s=0.002))


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few kilobytes have several frames, and a silent handshake ends soon."""
    framer = partial(ChunkFramer, max_payload_bytes=2048)
    monkeypatch.setattr("skyplane_gateway.source.transfer.ChunkFramer", framer)
    monkeypatch.setattr("skyplane_gateway.transport.link.HELLO_TIMEOUT_S", 0.2)
    monkeypatch.setattr("skyplane_gateway.transport.dialer.HELLO_TIMEOUT_S", 0.2)


Fleets = Callable[..., Any]


@pytest.fixture
def fleet_of(tmp_path: Path) -> Fleets:
    """`async with fleet_of(route(0, "a", "r", "b")) as fleet:`; from "a" to "b" without routes."""

    @asynccontextmanager
    async def make(
        *routes: Route, over_tls: bool = False, wire: WireProxy | None = None, **settings: Any
    ) -> AsyncIterator[InProcessFleet]:
        directory = tmp_path / uuid.uuid4().hex
        directory.mkdir()
        fleet = InProcessFleet(
            routes or (route(0, "a", "b"),), directory, {**SMALL, **settings}, over_tls, wire
        )
        try:
            await fleet.start()
            yield fleet
        finally:
            for gateway in fleet.gateways.values():
                await gateway.close()
            if wire is not None:
                wire.close()

    return make


@pytest.fixture
def wrap_stores(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`wrap_stores(put=f)`: calls of that store method go through `f(original, *args)`."""

    def make(**wrappers: Callable[..., Any]) -> None:
        class Wrapped:
            def __init__(self, store: ObjectStore) -> None:
                self._store = store

            def __getattr__(self, name: str) -> Any:
                original = getattr(self._store, name)
                return partial(wrappers[name], original) if name in wrappers else original

        monkeypatch.setattr(
            "skyplane_gateway.transfer_sides.open_store",
            lambda spec, credentials=None: Wrapped(open_store(spec, credentials)),
        )

    return make


@pytest.fixture
def gate(wrap_stores: Callable[..., None]) -> Gate:
    """What gateways write waits; all that they read is counted."""
    made = Gate()
    wrap_stores(put=made.write, put_part=made.write, read=made.read)
    return made
