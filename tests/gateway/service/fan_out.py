"""A fleet with one source and several destinations in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.service.in_process_fleet import InProcessFleet, copy_spec, memory_spec

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.config import AttachOrder, End, Group, Route

TREE = 9
SOURCE = "a"
GROUP = "99" * 16


def routes_along(*paths: str) -> tuple[Route, ...]:
    """The routes to the sinks of one tree, each as the names of its gateways."""
    return tuple(
        Route(number, tuple(path), (1,) * (len(path) - 1), 1.0, tree=TREE)
        for number, path in enumerate(paths)
    )


#: One relay before three sinks.
FAN = routes_along("arb", "arc", "ard")


@dataclass
class FanOut:
    """A copy of one bucket to one bucket for each sink of the fleet."""

    fleet: InProcessFleet
    source: StoreSpec
    is_encrypted: bool = False
    bytes_per_s: float | None = None
    destinations: dict[str, StoreSpec] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sinks = [route.nodes[-1] for route in self.fleet.routes]
        self.destinations = {sink: memory_spec() for sink in self.sinks}
        self.keys = {sink: f"{n:02x}" * 16 for n, sink in enumerate(self.sinks, 16)}

    def spec(self, sink: str, **more: Any) -> Any:
        return copy_spec(self.source, self.destinations[sink], sinks=(sink,), **more)

    async def attach(self, sink: str, epoch: int = 1) -> None:
        key, seal = self.keys[sink], self.fleet.sealing_key
        group = Group(
            GROUP, tuple(self.keys.values()), seal(GROUP).hex() if self.is_encrypted else None
        )
        ends: list[tuple[End, str, StoreSpec]] = [
            ("source", SOURCE, self.source),
            ("sink", sink, self.destinations[sink]),
        ]
        for side, node, store in ends:
            order = AttachOrder(
                epoch,
                side,
                store,
                sealing_key=seal(key).hex() if self.is_encrypted else None,
                group=group,
                bytes_per_s=self.bytes_per_s,
            )
            await asyncio.to_thread(self.fleet.client(node).attach, key, order)

    async def begin(self, sinks: Iterable[str] = (), epoch: int = 1, **more: Any) -> None:
        for sink in sinks or self.sinks:
            await self.attach(sink, epoch)
        for sink in sinks or self.sinks:
            await self.fleet.submit(self.keys[sink], self.spec(sink, **more), epoch=epoch)

    async def ended(self) -> dict[str, dict[str, Any]]:
        """Sink -> the status of its transfer at its end."""
        return {sink: await self.fleet.ended(key) for sink, key in self.keys.items()}

    def has_half_a_chunk(self, sink: str) -> bool:
        chunks = self.fleet.service(sink).sink._assemblers.values()
        return any(not chunk.is_complete for chunk in chunks)

    async def nothing_is_held(self) -> None:
        """Wait until no sink holds a byte of a chunk."""
        sinks = [self.fleet.service(name).sink for name in self.sinks]
        await self.fleet.until(lambda: not any(sink.held_bytes for sink in sinks))

    def tree_bytes(self, node: str) -> dict[tuple[str, ...], int]:
        """Hop of the tree -> bytes of frames that the gateway has sent on it."""
        return {
            tuple(row["nodes"]): row["frame_bytes"]
            for row in self.fleet.service(node).router.statistics(of_trees=True)
            if row["role"] == "source"
        }

    def route_bytes(self) -> int:
        """Bytes of frames that the source has sent on the routes of single transfers."""
        rows = self.fleet.service(SOURCE).router.statistics()
        return sum(row["frame_bytes"] for row in rows if row["role"] == "source")
