"""A scenario's regions as a network, with a store in each end of its transfers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.wan import network, stores
from bench.wan.network import Network, Pair, Unavailable
from bench.wan.scaled_grid import write_scaled
from bench.wan.scenario import Scenario
from bench.wan.stores import Store
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.instance_options import MEASURED_CONNECTIONS
from skyplane_orchestration.units import BYTES_PER_MIB

#: Of what the switch carries alone, a plan may use so much: the gateways need the rest.
MOST_OF_SWITCH: Final = 0.6
#: The switch's speed is the best of so many tests: other work on the machine slows some.
_SPEED_TESTS: Final = 3


@dataclass(frozen=True, slots=True)
class Area:
    """What transfers run over.

    Attributes:
        grid_directory: the scaled grid, on which plans are made.
        carries_gbps: what the switch carries alone.
    """

    scenario: Scenario
    folder: Path
    grid_directory: Path
    grid: Grid
    network: Network
    stores: dict[str, Store]
    carries_gbps: float

    def require_carried(self, plan: TransferPlan) -> None:
        """Raise Unavailable for a plan that the switch would be the bound of."""
        gbps = sum(edge.flow_gbps for edge in plan.edges)
        if gbps > MOST_OF_SWITCH * self.carries_gbps:
            raise Unavailable(
                f"the plan sends {gbps:.2f} Gbit/s over its edges, and the switch carries"
                f" {self.carries_gbps:.2f} here: divide the rates by a larger scale"
            )

    def set_lines(self, plan: TransferPlan) -> None:
        """All lines as the grid and the scenario say, for the instances and connections of a plan.

        The grid's rates are those of an instance pair over 64 connections; more of both carry more
        (paper, 4b).
        """
        connections = {(edge.src, edge.dst): edge.connections for edge in plan.edges}
        for src in self.grid.tags:
            here = plan.instances.get(src)
            kind = self.grid.instance_type(src.partition(":")[0], here.type if here else None)
            count = here.count if here else 1
            self.network.set_node(src, kind.egress_gbps * count, kind.ingress_gbps * count)
            for dst in self.grid.tags:
                if src != dst:
                    pairs = connections.get((src, dst), 0) / MEASURED_CONNECTIONS
                    self._set_line(src, dst, max(1.0, pairs))

    def _set_line(self, src: str, dst: str, pairs: float) -> None:
        row, column = self.grid.index_of(src), self.grid.index_of(dst)
        gbps, loss = float(self.grid.throughput_gbps[row, column]) * pairs, 0.0
        for line in self.scenario.lines:
            if (line.src, line.dst) == (src, dst):
                gbps, loss = gbps * line.rate_share, line.loss
        rtt_s = float(self.grid.rtt_ms[row, column]) / 1e3
        self.network.set_pair(src, dst, Pair(rtt_s, gbps, loss))

    def fill(self, store: Store, prefix: str, size_bytes: int) -> int:
        """Write objects of random bytes, of so many bytes together or a little more; the bytes."""
        each = self.scenario.object_mib * BYTES_PER_MIB
        count = -(-size_bytes // each)
        for number in range(count):
            key = f"{prefix}/{number:05}"
            store.objects.put(key, os.urandom(each))
        return count * each


@contextmanager
def opened(scenario: Scenario, folder: Path) -> Iterator[Area]:
    """The area of a scenario, until the block ends. Raises Unavailable.

    The stores' keys are in the environment from then on.
    """
    given = load_grid(scenario.grid)
    tags = scenario.regions or given.tags
    write_scaled(given, tags, scenario.scale, folder / "grid")
    grid = load_grid(folder / "grid")
    ends = list(dict.fromkeys(end for pair in scenario.transfers for end in pair))
    with ExitStack() as open_:
        nodes = [*tags, *(_store_node(end) for end in ends if scenario.store_rtt_ms)]
        made = open_.enter_context(network.opened(nodes, mtu=scenario.mtu))
        carries_gbps = max(made.carries_alone_gbps() for _ in range(_SPEED_TESTS))
        found = {end: _store(scenario, made, end, folder, open_) for end in ends}
        yield Area(scenario, folder, folder / "grid", grid, made, found, carries_gbps)


def _store_node(region: str) -> str:
    return f"store of {region}"


def _store(scenario: Scenario, made: Network, region: str, folder: Path, open_: ExitStack) -> Store:
    node = region
    if scenario.store_rtt_ms:
        node = _store_node(region)
        made.set_line(region, node, Pair(scenario.store_rtt_ms / 1e3))
        made.set_line(network.HOST, node, Pair(scenario.store_rtt_ms / 1e3))
    root = folder / region.replace(":", "-")
    running = stores.running(region, root, made.address(node), made.enter(node))
    store = open_.enter_context(running)
    os.environ |= store.environment
    return store


def differing(source: Store, from_: str, target: Store, to: str) -> Sequence[str]:
    """Keys that are not the same bytes at both ends."""
    ours, theirs = source.digests(from_), target.digests(to)
    return sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
