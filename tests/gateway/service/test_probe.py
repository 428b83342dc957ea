"""The orchestrator has a gateway measure a route."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import memory_spec, route

from skyplane_gateway.common.errors import Overloaded


async def test_a_source_measures_a_route_while_it_has_no_transfer(fleet_of: Any) -> None:
    async with fleet_of(route(0, "a", "r", "b")) as fleet:
        source = fleet.client("a")
        report = await asyncio.to_thread(source.probe, 0, 0.2)
        assert report.bytes > 0
        assert report.gbps == pytest.approx(report.bytes * 8 / report.seconds / 1e9)
        assert report.connections == 2
        # Nothing of it is left at the sink.
        assert fleet.service("b").sink.held_bytes == 0

        await fleet.attach(uuid.uuid4().hex, memory_spec(), memory_spec())
        with pytest.raises(Overloaded, match="a is part of a transfer"):
            await asyncio.to_thread(source.probe, 0, 0.2)
