"""A stopped transfer keeps what a resume needs."""

from __future__ import annotations

import asyncio
from typing import Any

from skyplane_gateway.config import MIB
from skyplane_gateway.selection.selector import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store

CHUNK = MIB
KEY = "57" * 16


def journals(spec: Any) -> list[str]:
    return [row.key for row in open_store(spec).list("") if JOURNAL_FOLDER in row.key]


async def test_the_next_epoch_resumes_a_stopped_transfer(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    bodies = {f"o{number}": bytes([number]) * (5 * MIB) for number in range(4)}

    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, bodies)
    spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        await fleet.attach(KEY, source, destination)
        await fleet.submit(KEY, spec)
        await fleet.until(lambda: gate.waiting > 0)
        client = fleet.client("a")
        stopping = asyncio.create_task(asyncio.to_thread(client.stop, KEY, "it is too dear"))
        await fleet.until(lambda: fleet.service("a").leads.transfer(KEY)._stop_reason is not None)
        gate.open()
        await stopping
        status = await fleet.ended(KEY)
        assert status["state"] == "failed"
        assert status["error"]["code"] == "stopped"
        assert status["error"]["message"] == "it is too dear"
        assert not status["error"]["is_permanent"]
        assert status["open_uploads"] == []
        kept = kit.uploads(destination)
        assert kept != []
        assert journals(destination) != []
        await asyncio.to_thread(client.stop, KEY, "once more")
        assert (
            fleet.service("a").leads.transfer(KEY).status()["error"]["message"] == "it is too dear"
        )

        await fleet.attach(KEY, source, destination, epoch=2)
        await fleet.submit(KEY, spec, epoch=2)
        assert (await fleet.ended(KEY))["state"] == "succeeded"
        # Until the success is acknowledged, the next run must know of it.
        assert journals(destination) != []
        await fleet.heard(KEY, spec, epoch=2)
    assert kit.content(destination) == bodies
    assert kit.uploads(destination) == []
    assert journals(destination) == []


async def test_a_stop_changes_nothing_in_a_transfer_that_has_ended(fleet_of: Any, kit: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"o": b"x"})
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        await fleet.attach(KEY, source, destination)
        await fleet.submit(KEY, kit.copy_spec(source, destination))
        await fleet.ended(KEY)
        for node in ("a", "b"):
            await asyncio.to_thread(fleet.client(node).stop, KEY, "it is too dear")
        assert fleet.service("a").leads.transfer(KEY).status()["state"] == "succeeded"
