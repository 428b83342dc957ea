"""Objects that the source has archived: failed or skipped before a byte moves, or read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.memory_store import _buckets

from skyplane_gateway.common.objects import StoreSpec

ADVICE = "it is archived: restore it"


def source_of(kit: Any) -> StoreSpec:
    """`cold` and `frozen/large` are archived."""
    spec: StoreSpec = kit.memory_spec()
    kit.fill(spec, {"cold": b"1", "frozen/large": bytes(3 << 20), "warm": b"2"})
    objects = _buckets[spec.bucket].objects
    for key in ("cold", "frozen/large"):
        info = replace(objects[key].info, archived=ADVICE)
        objects[key] = replace(objects[key], info=info)
    return spec


@pytest.mark.parametrize(
    ("rule", "state", "counts"),
    [
        ("fail", "failed", (1, 0, 2, 0)),
        ("skip", "succeeded", (1, 2, 0, 2)),
        ("read", "succeeded", (3, 0, 0, 0)),
    ],
)
async def test_archived_objects(
    fleet_of: Any, kit: Any, rule: str, state: str, counts: tuple[int, ...]
) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        source, destination = source_of(kit), kit.memory_spec()
        spec = kit.copy_spec(source, destination, chunk_bytes=1 << 20, on_archived_object=rule)
        status = await fleet.run(spec)
        names = ("copied", "skipped", "failed", "archived")
        assert (status["state"], tuple(status[name] for name in names)) == (state, counts)
        reason = f"{ADVICE} (rule for archived objects: {rule})"
        assert {row["code"] for row in status["failures"]} == (
            {"not-restored"} if counts[2] else set()
        )
        lead = fleet.service("a").leads.transfer(status["transfer_key"])
        reasons = {row.get("reason") for row in lead.report.page(0)["rows"]}
        assert reasons == ({None} if rule == "read" else {None, reason})
        assert ("cold" in kit.content(destination)) == (rule == "read")
