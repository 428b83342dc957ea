"""Real gateways 170 ms apart: every connection of the plan carries its part.

Nothing here depends on how fast this machine is; which share of a line's rate comes out is
measured by `python -m bench.wan line`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from bench.wan import network
from bench.wan.network import Flow, Network, Pair

from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.units import gbps_of

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.long]

RTT_S: Final = 0.170
#: What a connection can have on its way: a round trip lets through 1.5 MB/s.
WINDOW_BYTES: Final = 256 << 10
#: While there is room in it, the kernel adds a segment, however little room that is.
MOST_UNDER_WAY_BYTES: Final = WINDOW_BYTES + (64 << 10)
#: What the line carries: about six connections' worth.
LINE_BYTES_PER_S: Final = 10e6
MIB: Final = 1 << 20


NEAR, FAR = "near", "far"


@pytest.fixture
def line() -> Iterator[Network]:
    try:
        with network.opened((NEAR, FAR)) as made:
            made.set_line(NEAR, FAR, Pair(RTT_S, gbps_of(LINE_BYTES_PER_S, 1.0), queue_s=0.5))
            windows = f"4096 16384 {WINDOW_BYTES}"
            for node in (NEAR, FAR):
                made.set_sysctl(node, "net/ipv4/tcp_wmem", windows)
            yield made
    except network.Unavailable as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Copy:
    """A copy that is whole, and the connections to the sink's data port as the line saw them."""

    result: TransferResult
    flows: tuple[Flow, ...]

    @property
    def most_under_way_bytes(self) -> int:
        return self.flows[0].most_under_way_bytes


def copy(
    kit: ClientKit, line: Network, folder: Path, *, connections: int, sizes_mib: Sequence[int]
) -> Copy:
    """Copies objects from one namespace to the other by a fleet of its own."""
    source, target = folder / f"{connections}-in", folder / f"{connections}-out"
    source.mkdir()
    target.mkdir()
    bodies = {f"o{number}": os.urandom(size * MIB) for number, size in enumerate(sizes_mib)}
    for name, body in bodies.items():
        (source / name).write_bytes(body)
    plan = kit.plan((kit.SOURCE, kit.SINK))
    plan = replace(plan, edges=tuple(replace(e, connections=connections) for e in plan.edges))
    options = kit.provisioner(
        address_map={kit.SOURCE: line.address(NEAR), kit.SINK: line.address(FAR)},
        launch_prefix={kit.SOURCE: line.enter(NEAR), kit.SINK: line.enter(FAR)},
    )
    client = kit.client(f"over {connections}", provisioner=options)
    job = TransferJob(Location(f"{source}/"), Location(f"{target}/"), limits=Limits(chunk_mib=5))
    fleet = client.provision(plan)
    try:
        result = client.transfer(job, fleet)
    finally:
        client.teardown(fleet)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == bodies
    assert kit.home.traces() == []
    (sink,) = fleet.sinks
    between = [one for one in line.counts().flows if (one.src, one.dst) == (NEAR, FAR)]
    return Copy(result, tuple(one for one in between if one.to_port == sink.data[1]))


def test_9_connections_make_up_for_the_distance(
    kit: ClientKit, line: Network, tmp_path: Path
) -> None:
    many = copy(kit, line, tmp_path, connections=16, sizes_mib=[5] * 8)
    one = copy(kit, line, tmp_path, connections=1, sizes_mib=[2])
    print(many.flows, one.flows, sep="\n")
    # The distance is real: no machine is so fast that one connection gets beyond its window.
    assert len(one.flows) == 1
    assert one.most_under_way_bytes <= MOST_UNDER_WAY_BYTES
    # The first window is there after half a round trip, each other one a whole one later.
    later_bytes = one.result.copied_bytes - MOST_UNDER_WAY_BYTES
    assert later_bytes / one.result.seconds <= MOST_UNDER_WAY_BYTES / RTT_S
    # As many as were planned get beyond it together. They take turns, frame by frame; a frame
    # is 1 MiB, or what is left of its chunk.
    sizes = [flow.payload_bytes for flow in many.flows]
    assert len(sizes) == 16
    assert min(sizes) > 0.1 * MIB
    assert sum(sizes) > many.result.copied_bytes
    assert many.most_under_way_bytes > 2 * MOST_UNDER_WAY_BYTES
