"""Releases while a transfer runs, unexpected errors, and what transfers leave behind."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from skyplane_gateway.common.errors import SkyplaneError
from skyplane_gateway.config import MIB

KEY = "ab" * 16


async def test_nothing_is_written_once_a_release_has_returned(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"a": bytes(MIB)})
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        await fleet.attach(KEY, source, destination)
        await fleet.submit(KEY, kit.copy_spec(source, destination))
        await fleet.until(lambda: gate.waiting > 0)
        release = asyncio.create_task(asyncio.to_thread(fleet.client("b").release, KEY, 1))
        await fleet.until(lambda: not fleet.service("b").sink._transfers)
        assert not release.done()
        gate.open()
        await release
        written = kit.content(destination)
        await asyncio.to_thread(fleet.client("a").cancel, KEY)
        assert kit.content(destination) == written


async def test_a_new_lead_may_count_its_chunks_from_one_again(fleet_of: Any, kit: Any) -> None:
    """The sinks have released the transfer of the old lead."""

    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"a": b"1", "b": b"2"})
    spec = kit.copy_spec(source, destination)
    async with fleet_of(kit.route(0, "a", "b"), ack_deadline_s=2.0) as fleet:
        for _ in range(2):
            await fleet.attach(KEY, source, destination)
            await fleet.submit(KEY, spec)
            assert (await fleet.ended(KEY))["error"] is None
            await fleet.heard(KEY, spec)
            del fleet.service("a").leads._runs[KEY]


@pytest.mark.parametrize(("method", "size"), [("put", 10), ("put_part", 3 * MIB), ("read", 10)])
async def test_an_unforeseen_error_of_a_store_fails_its_object_alone(
    method: str,
    size: int,
    fleet_of: Any,
    kit: Any,
    wrap_stores: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error that no store should raise still gives its chunk an outcome."""

    def fail(original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        if key == "bad":
            raise KeyError("a defect")
        return original(key, *arguments, **more)

    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"bad": bytes(size), "good": b"1"})
    wrap_stores(**{method: fail})
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        status = await fleet.run(kit.copy_spec(source, destination, chunk_bytes=MIB))
        assert status["state"] == "failed"
        assert kit.content(destination) == {"good": b"1"}
        (failure,) = status["failures"]
        assert (failure["destination"], failure["code"]) == ("bad", "internal-error")
        node = "source gateway a" if method == "read" else "sink gateway b"
        assert f"'bad': the {node} failed" in failure["reason"]
        assert "(" not in failure["reason"], "a Python repr"
        assert "KeyError: 'a defect'" in caplog.text, "no traceback in the log"
        assert kit.uploads(destination) == []
        # Parts of the failed object that were under way still come to their end.
        await fleet.until(lambda: fleet.service("b").sink.held_bytes == 0)


async def test_an_unforeseen_error_at_the_lead_ends_its_transfer(
    fleet_of: Any,
    kit: Any,
    wrap_stores: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(original: Any, *arguments: Any, **more: Any) -> Any:
        raise RuntimeError("a defect")

    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"a": b"1"})
    wrap_stores(list=fail)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        status = await fleet.run(kit.copy_spec(source, destination))
        assert (status["state"], status["error"]["code"]) == ("failed", "internal-error")
        assert "RuntimeError: a defect" in caplog.text, "no traceback in the log"


async def test_an_object_that_cannot_be_read_to_its_end_holds_no_room_at_the_sink(
    fleet_of: Any, kit: Any, wrap_stores: Callable[..., None]
) -> None:
    """Each leaves half a chunk behind; sixteen would fill the sink four times over."""

    class Breaking:
        def __init__(self, reader: Any) -> None:
            self._reader, self._left = reader, 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

        def readinto(self, buffer: memoryview) -> int:
            if self._left == 0:
                raise SkyplaneError("the file was changed while it was read", is_permanent=True)
            self._left -= 1
            count: int = self._reader.readinto(buffer)
            return count

    def breaking(original: Any, key: str, **more: Any) -> Any:
        reader = original(key, **more)
        return Breaking(reader) if key.startswith("bad") else reader

    source, destination = kit.memory_spec(), kit.memory_spec()
    bad = {f"bad{i:02}": bytes(2 * MIB) for i in range(16)}
    good = {f"good{i:02}": bytes(2 * MIB) for i in range(8)}
    kit.fill(source, {**bad, **good})
    wrap_stores(read=breaking)
    spec = kit.copy_spec(source, destination, chunk_bytes=2 * MIB)
    async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
        status = await fleet.run(spec)
        assert (status["copied"], status["failed"]) == (8, 16)
        assert kit.content(destination) == good
        await fleet.until(lambda: fleet.service("b").sink.held_bytes == 0)


async def test_many_transfers_leave_no_thread_and_no_connection(fleet_of: Any, kit: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {f"o{i}": bytes(MIB) for i in range(4)})
    spec = kit.copy_spec(source, destination, chunk_bytes=MIB)
    routes = [kit.route(0, "a", "b"), kit.route(1, "c", "b")]
    async with fleet_of(*routes) as fleet:

        async def one(number: int) -> None:
            key = f"{number:032x}"
            await fleet.attach(key, source, destination)
            await fleet.submit(key, spec)
            assert (await fleet.ended(key))["error"] is None
            for node in fleet.nodes:
                await asyncio.to_thread(fleet.client(node).release, key, 1)

        for number in range(3):
            await one(number)
        gc.collect()
        tasks, threads = len(asyncio.all_tasks()), threading.active_count()
        for number in range(3, 23):
            await one(number)
        # The test's own calls leave connections for the collector to close.
        gc.collect()
        await fleet.until(lambda: len(asyncio.all_tasks()) <= tasks + 2)
        # The pools of the one event loop grow to their size, and no further.
        assert threading.active_count() <= threads + 128
        for node in fleet.nodes:
            service = fleet.service(node)
            assert service.endpoints.sources == service.endpoints.destinations == {}
            assert service.sink.held_bytes == 0
            assert len(service.sink._ended) == 0
