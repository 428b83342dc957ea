"""An object that appears at the destination while it is being copied is somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.config import MIB
from skyplane_gateway.selection.selector import JOURNAL_FOLDER
from skyplane_gateway.stores import open_store

BODIES = {"parts": bytes(3 * MIB), "small": b"small", "whole": b"w" * MIB}
THEIRS = b"somebody else's"


@pytest.mark.parametrize("rule", ["fail", "skip", "replace"])
@pytest.mark.parametrize("appeared", sorted(BODIES))
async def test_an_object_that_appears_is_kept_and_the_upload_aborted(
    rule: str, appeared: str, fleet_of: Any, kit: Any, gate: Any
) -> None:
    """Under `replace` as well: that rule speaks of what was there when it was listed."""

    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, BODIES)
    spec = kit.copy_spec(source, destination, chunk_bytes=MIB, conflict=rule)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        transfer = "24" * 16
        await fleet.attach(transfer, source, destination)
        await fleet.submit(transfer, spec)
        everything = sum(map(len, BODIES.values()))
        await fleet.until(lambda: fleet.service("b").sink.held_bytes == everything)
        open_store(destination).put(appeared, THEIRS)
        gate.open()
        status = await fleet.ended(transfer)
    assert (status["state"], status["error"]["code"]) == ("failed", "objects-failed")
    assert (status["copied"], status["failed"]) == (2, 1)
    (failure,) = status["failures"]
    assert (failure["destination"], failure["code"]) == (appeared, "precondition-failed")
    assert failure["reason"]
    assert kit.content(destination) == {**BODIES, appeared: THEIRS}
    assert kit.uploads(destination) == []
    # The journal stays for the resume that the handle of such a result names.
    rows = [row.key for row in open_store(destination).list("")]
    assert len([key for key in rows if JOURNAL_FOLDER in key]) == 1


async def test_a_transfer_that_allows_failures_leaves_no_journal(fleet_of: Any, kit: Any) -> None:
    """It counts as a success, so the same task run again copies again."""

    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, BODIES)
    kit.fill(destination, {"small": THEIRS})
    spec = kit.copy_spec(source, destination, chunk_bytes=MIB, conflict="fail", allow_failed=True)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        transfer = "25" * 16
        await fleet.attach(transfer, source, destination)
        await fleet.submit(transfer, spec)
        status = await fleet.ended(transfer)
        await fleet.heard(transfer, spec)
    assert (status["state"], status["error"]["code"]) == ("failed", "objects-failed")
    assert (status["copied"], status["failed"], status["open_uploads"]) == (2, 1, [])
    assert (kit.uploads(destination), kit.journals(destination)) == ([], [])
