"""What goes wrong in a transfer comes out as a clear failure that leaves nothing open."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stranger import answering

from skyplane_gateway.config import MIB
from skyplane_gateway.errors import (
    ConfigurationInvalid,
    GatewayLost,
    NotFound,
    PermissionDenied,
    StoreUnavailable,
)
from skyplane_gateway.protocol.frames import seal_frame
from skyplane_gateway.selection.rules import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.local.errors import translate

SMALL = {"assembly_mib": 8, "readers": 3, "store_threads": 4}


@pytest.fixture
def sabotage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`sabotage(put=f)`: calls of that store method go through `f(original, *args)`."""

    def make(**wrappers: Callable[..., Any]) -> None:
        class Sabotaged:
            def __init__(self, store: Any) -> None:
                self._store = store

            def __getattr__(self, name: str) -> Any:
                original = getattr(self._store, name)
                wrapper = wrappers.get(name)
                if wrapper is None:
                    return original
                return lambda *args, **more: wrapper(original, *args, **more)

        def open_sabotaged(spec: Any, credentials: Any = None) -> Any:
            return Sabotaged(open_store(spec, credentials))

        monkeypatch.setattr("skyplane_gateway.endpoints.open_store", open_sabotaged)

    return make


async def vanish(fleet: Any, node: str) -> None:
    """The gateway is gone as after kill -9: nobody listens, every connection is broken."""
    gateway = fleet.gateways[node]
    gateway._keeper.cancel()
    gateway._data.close()
    gateway.service.route_is_down = lambda number, loss: None
    for route in gateway.service.router._routes.values():
        for link in route.links:
            link._transport.abort()
    gateway.service.router.close()
    await gateway._runner.cleanup()


def test_a_destination_that_is_full_passes_and_loses_no_object_from_the_counts(
    fleet_of: Any, kit: Any, sabotage: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be written, the journal included, until somebody frees some space."""
    monkeypatch.setattr("skyplane_gateway.journal.writer._BACKOFF_S", 0.001)
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

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {f"o{i}": bytes([i]) * 100 for i in range(6)}
        kit.fill(source, objects)
        sabotage(put=put)
        spec, transfer = kit.copy_spec(source, destination), "77" * 16
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(transfer, source, destination)
            await fleet.submit(transfer, spec)
            status = await fleet.ended(transfer)
            has_ended.set()
            assert (status["state"], status["error"]["is_permanent"]) == ("failed", False)
            assert "No space left" in status["error"]["message"]
            counts = [status[name] for name in ("objects", "copied", "failed", "unfinished")]
            assert counts == [6, 0, 0, 6]
            is_full.clear()
            await fleet.attach(transfer, source, destination, epoch=2)
            await fleet.submit(transfer, spec, epoch=2)
            status = await fleet.ended(transfer)
            assert (status["error"], status["copied"], status["unfinished"]) == (None, 6, 0)
            assert kit.content(destination) == objects

    asyncio.run(scenario())


PATHS: dict[str, list[tuple[str, ...]]] = {
    "relay": [("a", "r", "b"), ("a", "c")],
    "source": [("a", "b"), ("c", "b")],
    "sink": [("a", "b"), ("a", "c")],
}


@pytest.mark.parametrize("role", sorted(PATHS))
def test_a_gateway_lost_in_mid_transfer_is_done_without(
    role: str, fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {f"o{i}": bytes([i]) * (3 * MIB) for i in range(6)}
        objects |= {f"s{i}": bytes([i]) * 100 for i in range(30)}
        kit.fill(source, objects)
        held = gate(destination)
        transfer = "77" * 16
        routes = [kit.route(number, *nodes) for number, nodes in enumerate(PATHS[role])]
        lost = {"relay": "r", "source": "c", "sink": "b"}[role]
        async with fleet_of(*routes, **SMALL) as fleet:
            await fleet.attach(transfer, source, destination)
            await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
            await fleet.until(lambda: held.waiting > 0)
            await vanish(fleet, lost)
            held.open()
            status = await fleet.ended(transfer)
            assert status["error"] is None
            assert status["copied"] == len(objects)
            assert status["resent"] > 0
            assert status["routes_down"]
            assert kit.content(destination) == objects
            assert kit.uploads(destination) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("role", ["source", "sink"])
def test_a_gateway_whose_address_somebody_else_has_is_done_without(
    role: str, fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    """One dead gateway whose address had gone to another machine failed a transfer for good."""

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {f"o{i}": bytes([i]) * (3 * MIB) for i in range(6)}
        kit.fill(source, objects)
        transfer, lost = "77" * 16, {"source": "c", "sink": "b"}[role]
        routes = [kit.route(number, *nodes) for number, nodes in enumerate(PATHS[role])]
        with answering(("127.0.0.1", 0), tmp_path) as address:
            async with fleet_of(*routes, **SMALL) as fleet:
                await fleet.attach(transfer, source, destination)
                known = fleet.topology()
                elsewhere = {**known.control_addresses, lost: address}
                fleet.service("a").apply_topology(replace(known, control_addresses=elsewhere))
                await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
                status = await fleet.ended(transfer)
                assert status["error"] is None
                assert set(status[f"lost_{role}s"]) == {lost}
                assert kit.content(destination) == objects

    asyncio.run(scenario())


def test_a_connection_lost_in_mid_transfer_is_made_again(
    fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {f"o{i}": bytes([i]) * (3 * MIB) for i in range(6)}
        kit.fill(source, objects)
        held = gate(destination)
        transfer = "77" * 16
        async with fleet_of(kit.route(0, "a", "r", "b"), **SMALL) as fleet:
            await fleet.attach(transfer, source, destination)
            await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
            await fleet.until(lambda: held.waiting > 0)
            for route in fleet.service("r").router._routes.values():
                for link in route.links:
                    link._transport.abort()
            held.open()
            status = await fleet.ended(transfer)
            assert status["error"] is None
            assert status["routes_down"] == {}
            assert kit.content(destination) == objects
            assert kit.uploads(destination) == []

    asyncio.run(scenario())


def test_without_any_path_left_the_transfer_fails_clearly(
    fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(3 * MIB) for i in range(6)})
        held = gate(destination)
        transfer = "77" * 16
        async with fleet_of(kit.route(0, "a", "r", "b"), ack_deadline_s=0.5, **SMALL) as fleet:
            await fleet.attach(transfer, source, destination)
            await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
            await fleet.until(lambda: held.waiting > 0)
            await vanish(fleet, "r")
            held.open()
            status = await fleet.ended(transfer)
            assert status["state"] == "failed"
            assert status["error"]["code"] == "gateway-lost"
            assert not status["error"]["is_permanent"]
            assert "a -> r -> b" in status["error"]["message"]
            assert list(status["routes_down"]) == ["0"]
            # What was begun is kept, by name, for whoever goes on.
            assert status["open_uploads"] == []
            assert set(kit.uploads(destination)) <= kit.named_uploads(destination)
            with pytest.raises(GatewayLost, match="no path is up"):
                await fleet.submit(transfer, kit.copy_spec(source, destination), epoch=2)
            for node in ("a", "b"):
                await asyncio.to_thread(fleet.client(node).cancel, transfer)
            assert (kit.uploads(destination), kit.journals(destination)) == ([], [])

    asyncio.run(scenario())


def test_a_submit_is_taken_while_one_path_is_up(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {f"o{i}": bytes([i]) * MIB for i in range(6)}
        kit.fill(source, objects)
        routes = [kit.route(0, "a", "r", "b"), kit.route(1, "a", "c")]
        async with fleet_of(*routes, **SMALL) as fleet:
            transfer = "78" * 16
            await fleet.attach(transfer, source, destination)
            for lost in ("r", "b"):
                await vanish(fleet, lost)
            await fleet.until(lambda: fleet.service("a").router.loss(0))
            await fleet.submit(transfer, kit.copy_spec(source, destination))
            status = await fleet.ended(transfer)
            assert status["error"] is None
            assert status["delivered_bytes"] == {"0": 0, "1": 6 * MIB}
            assert kit.content(destination) == objects

    asyncio.run(scenario())


def test_a_vanished_object_fails_alone(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {"gone": b"x" * 10, "stays": b"y" * 10, "big-gone": bytes(3 * MIB), "z": b""}
        store = kit.fill(source, objects)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            lead = fleet.service("a")
            transfer = "88" * 16
            await fleet.attach(transfer, source, destination)
            listed = list(store.list(""))
            # The listing shows what was there; then two of them are deleted.
            lead.endpoints.sources[transfer].store.list = lambda prefix, **_: iter(listed)
            store.delete("gone")
            store.delete("big-gone")
            await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
            status = await fleet.ended(transfer)
            assert status["state"] == "failed"
            assert status["error"]["code"] == "objects-failed"
            assert (status["copied"], status["failed"]) == (2, 2)
            assert {row["source"]: row["code"] for row in status["failures"]} == {
                "gone": "not-found",
                "big-gone": "not-found",
            }
            assert kit.content(destination) == {"stays": objects["stays"], "z": b""}
            assert kit.uploads(destination) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("parts", [1, 3])
def test_an_overwritten_object_is_copied_as_it_is_now_and_not_as_a_mixture(
    parts: int, fleet_of: Any, kit: Any
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        store = kit.fill(source, {"a": bytes(parts * MIB), "b": b"b"})
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            transfer = "99" * 16
            await fleet.attach(transfer, source, destination)
            listed = list(store.list(""))
            fleet.service("a").endpoints.sources[transfer].store.list = lambda prefix, **_: iter(
                listed
            )
            store.put("a", b"x" * (parts * MIB))
            await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
            status = await fleet.ended(transfer)
            assert status["error"] is None
            assert kit.content(destination) == {"a": b"x" * (parts * MIB), "b": b"b"}
            assert kit.uploads(destination) == []

    asyncio.run(scenario())


@pytest.mark.parametrize("parts", [1, 3])
def test_an_object_that_is_overwritten_again_and_again_fails_alone(
    parts: int, fleet_of: Any, kit: Any, sabotage: Callable[..., None]
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        store = kit.fill(source, {"a": bytes(parts * MIB), "b": b"b"})

        def overwriting(original: Any, key: str, **more: Any) -> Any:
            if key == "a":
                store.put("a", bytes(parts * MIB))
            return original(key, **more)

        sabotage(read=overwriting)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
            status = await fleet.run(spec, verify="none")
            assert [row["source"] for row in status["failures"]] == ["a"]
            assert "changed twice" in status["failures"][0]["reason"]
            assert kit.content(destination) == {"b": b"b"}
            assert kit.uploads(destination) == []

    asyncio.run(scenario())


def test_an_unwritable_destination_fails_with_the_reason(
    fleet_of: Any, kit: Any, sabotage: Callable[..., None]
) -> None:
    def refuse(original: Any, *args: Any, **more: Any) -> Any:
        raise PermissionDenied("writing to bucket 'x' is not allowed; grant s3:PutObject")

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"1", "big": bytes(2 * MIB)})
        sabotage(put=refuse, create_upload=refuse)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
            status = await fleet.run(spec)
            # It is not even tried with every object: the journal comes first.
            assert (status["state"], status["sendings"]) == ("failed", 0)
            assert (status["error"]["code"], status["error"]["is_permanent"]) == (
                "permission-denied",
                True,
            )
            assert "s3:PutObject" in status["error"]["message"]

    asyncio.run(scenario())


def test_a_passing_trouble_of_the_store_is_tried_again(
    fleet_of: Any, kit: Any, sabotage: Callable[..., None]
) -> None:
    failures = {"put": 2, "put_part": 2, "complete_upload": 1, "read": 2}

    def flaky(name: str) -> Callable[..., Any]:
        def call(original: Any, *args: Any, **more: Any) -> Any:
            if failures[name] > 0:
                failures[name] -= 1
                raise StoreUnavailable("503; try again")
            return original(*args, **more)

        return call

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {"a": b"1", "b": b"2", "big": bytes(3 * MIB)}
        kit.fill(source, objects)
        sabotage(**{name: flaky(name) for name in failures})
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            status = await fleet.run(kit.copy_spec(source, destination, chunk_bytes=MIB))
            assert status["error"] is None
            assert set(failures.values()) == {0}
            assert kit.content(destination) == objects

    asyncio.run(scenario())


def test_bytes_that_change_at_the_store_are_found_and_removed(
    fleet_of: Any, kit: Any, sabotage: Callable[..., None]
) -> None:
    def corrupting(original: Any, key: str, data: Any, **more: Any) -> Any:
        flipped = bytearray(data)
        flipped[0] ^= 1
        more["crc32c"] = None
        return original(key, flipped, **more)

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"bytes"})
        sabotage(put=corrupting)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            for verify in ("stored", "reread"):
                status = await fleet.run(kit.copy_spec(source, destination), verify=verify)
                assert status["failures"][0]["code"] == "read-back-mismatch", verify
                assert kit.content(destination) == {}

    asyncio.run(scenario())


def test_12_a_byte_flipped_before_framing_is_read_again_and_counted(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum was taken before; only the object it hits takes another attempt."""
    is_flipped = False

    def flipping(header: Any, offset: int, payload: Any, *checks: Any, **more: Any) -> Any:
        nonlocal is_flipped
        body = b"".join(payload)
        if b"hit" in body and not is_flipped:
            is_flipped = True
            payload = [body.replace(b"hit", b"hid")]
        return seal_frame(header, offset, payload, *checks, **more)

    monkeypatch.setattr("skyplane_gateway.protocol.framer.seal_frame", flipping)

    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        objects = {"hit": b"hit" * MIB, "other": b"o" * (3 * MIB)}
        kit.fill(source, objects)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            status = await fleet.run(kit.copy_spec(source, destination, chunk_bytes=4 * MIB))
            assert (status["state"], status["error"]) == ("succeeded", None)
            rows = fleet.service("a").leads.transfer(status["transfer_key"]).report.page(0)["rows"]
        assert is_flipped
        assert {row["source"]: row["attempts"] for row in rows} == {"hit": 2, "other": 1}
        assert kit.content(destination) == objects
        assert kit.uploads(destination) == []

    asyncio.run(scenario())


def test_a_missing_bucket_is_told_when_attaching(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        there = kit.memory_spec()
        missing = type(there)("memory", "nowhere")
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            with pytest.raises(NotFound, match="nowhere"):
                await fleet.attach("aa" * 16, missing, there)
            with pytest.raises(NotFound, match="nowhere"):
                await fleet.attach("aa" * 16, there, missing)

    asyncio.run(scenario())


def test_only_a_source_takes_a_submit(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        spec = kit.copy_spec(kit.memory_spec(), kit.memory_spec())
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            await fleet.attach("bb" * 16, spec.source, spec.destination)
            with pytest.raises(ConfigurationInvalid, match="no source gateway"):
                await asyncio.to_thread(
                    lambda: fleet.client("b").submit("bb" * 16, epoch=1, spec=spec)
                )

    asyncio.run(scenario())


def test_a_fleet_that_ends_in_good_order_warns_of_nothing(
    fleet_of: Any, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
            await fleet.gateways["a"].close()
            await fleet.until(lambda: fleet.service("b").router.loss(0))
            assert "a is ending" in str(fleet.service("b").router.loss(0))

    asyncio.run(scenario())
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_gateway_that_is_lost_is_warned_of(
    fleet_of: Any, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
            (route,) = fleet.service("r").router._routes.values()
            for link in route.upstream_links:
                link._transport.abort()
            await fleet.until(lambda: fleet.service("b").router.loss(0))

    asyncio.run(scenario())
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert any("the connection to a broke" in message for message in warned)
