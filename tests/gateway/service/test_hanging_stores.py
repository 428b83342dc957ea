"""A destination that takes connections and never answers is named, and no gateway is blamed.

To bring up other gateways, as after a loss, would not help.
"""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest

from skyplane_gateway.config import MIB
from skyplane_gateway.control import client as client_module
from skyplane_gateway.control.client import verb_timeout_s
from skyplane_gateway.errors import StoreUnavailable
from skyplane_gateway.stores import open_store


class Hanging:
    """A store of which some verbs do not answer before the end of the test."""

    def __init__(self, store: Any, verbs: tuple[str, ...], over: threading.Event) -> None:
        self._store = store
        self._verbs = verbs
        self._over = over

    def __getattr__(self, name: str) -> Any:
        return self._hang if name in self._verbs else getattr(self._store, name)

    def _hang(self, *_: Any, **__: Any) -> None:
        self._over.wait(60)
        raise StoreUnavailable("it never answered")


@pytest.mark.parametrize(
    ("verbs", "says"),
    [
        # The writing of chunks: no receipt comes by any path.
        (("put_part",), "chunks waiting for it: [1-9]"),
        # A verb of the lead, which would take the sink for lost.
        (("create_upload",), "no answer of the store .* to 'create' within 0.2 s"),
    ],
)
@pytest.mark.parametrize("nodes", [("a", "b"), ("a",)])
def test_a_destination_that_hangs_is_what_is_named(
    verbs: tuple[str, ...],
    says: str,
    nodes: tuple[str, ...],
    fleet_of: Any,
    kit: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {f"o{number}": bytes(2 * MIB) for number in range(2)})
    over = threading.Event()

    def open_hanging(spec: Any, credentials: Any = None) -> Any:
        store = open_store(spec, credentials)
        return Hanging(store, verbs, over) if spec == destination else store

    monkeypatch.setattr("skyplane_gateway.endpoints.open_store", open_hanging)
    monkeypatch.setattr(client_module, "_VERB_TIMEOUT_S", 5.2)

    async def scenario() -> None:
        # What hangs is not waited for in earnest.
        async with fleet_of(
            kit.route(0, *nodes), ack_deadline_s=0.3, stall_deadline_s=0.6
        ) as fleet:
            transfer = "58" * 16
            await fleet.attach(transfer, source, destination)
            await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
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

    asyncio.run(scenario())


def test_a_store_that_hangs_from_the_start_is_named_by_attach(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = kit.memory_spec()
    over = threading.Event()

    def open_hanging(spec: Any, credentials: Any = None) -> Any:
        return Hanging(open_store(spec, credentials), ("check",), over)

    monkeypatch.setattr("skyplane_gateway.endpoints.open_store", open_hanging)
    monkeypatch.setattr("skyplane_gateway.endpoints._CHECK_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a")) as fleet:
            try:
                with pytest.raises(StoreUnavailable, match=f"memory://{source.bucket}"):
                    await fleet.attach("58" * 16, source, kit.memory_spec())
            finally:
                over.set()

    asyncio.run(scenario())


def test_the_lead_waits_longer_than_a_sink_needs_to_say_so() -> None:
    assert verb_timeout_s("create", {"key": "k"}) == 30.0
    assert verb_timeout_s("complete", {"size_bytes": 1}) == 900.0
    assert verb_timeout_s("head", {"key": "k", "checksum": True, "size_bytes": 10**11}) == 10**4
