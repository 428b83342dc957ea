"""Real gateways 170 ms apart: the line is filled, by as many connections as that takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.faults import wan

from skyplane_orchestration.job import Limits, TransferJob
from skyplane_orchestration.location import Location
from skyplane_orchestration.result import TransferResult

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.e2e, pytest.mark.root]

RTT_S: Final = 0.170
#: What a connection can have on its way: a round trip lets through 1.5 MB/s.
WINDOW_BYTES: Final = 256 << 10
#: What the line carries: about six connections' worth.
LINE_BYTES_PER_S: Final = 10e6
MIB: Final = 1 << 20


@pytest.fixture
def line() -> Iterator[wan.Line]:
    try:
        with wan.line(RTT_S, LINE_BYTES_PER_S, most_window_bytes=WINDOW_BYTES) as made:
            yield made
    except wan.Unavailable as error:
        pytest.skip(str(error))


def copy(
    kit: ClientKit, line: wan.Line, folder: Path, *, connections: int, mib: int
) -> TransferResult:
    """Copies so much from one namespace to the other by a fleet of its own."""
    source, target = folder / f"{connections}-in", folder / f"{connections}-out"
    source.mkdir()
    target.mkdir()
    bodies = {f"o{number}": os.urandom(5 * MIB) for number in range(mib // 5)}
    for name, body in bodies.items():
        (source / name).write_bytes(body)
    plan = kit.plan((kit.SOURCE, kit.SINK))
    plan = replace(plan, edges=tuple(replace(e, connections=connections) for e in plan.edges))
    options = kit.provisioner(
        address_map=dict(zip((kit.SOURCE, kit.SINK), wan.ADDRESSES, strict=True)),
        launch_prefix={
            kit.SOURCE: ("ip", "netns", "exec", line.near),
            kit.SINK: ("ip", "netns", "exec", line.far),
        },
    )
    client = kit.client(f"over {connections}", provisioner=options)
    job = TransferJob(Location(f"{source}/"), Location(f"{target}/"), limits=Limits(chunk_mib=5))
    result = client.run(job, plan=plan)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == bodies
    assert kit.home.traces() == []
    return result


def test_9_connections_make_up_for_the_distance(
    kit: ClientKit, line: wan.Line, tmp_path: Path
) -> None:
    many = copy(kit, line, tmp_path, connections=16, mib=40)
    one = copy(kit, line, tmp_path, connections=1, mib=5)
    rates = {
        row: result.copied_bytes / result.seconds for row, result in (("many", many), ("one", one))
    }
    print({name: f"{rate / 1e6:.2f} MB/s" for name, rate in rates.items()})
    # The bound of one connection shows that the distance is real.
    assert rates["one"] < 1.1 * WINDOW_BYTES / RTT_S
    # Listing, first orders and the last receipts take some round trips of the four seconds,
    # and a machine that is busy with other tests takes its share: it is 0.75 on a quiet one.
    assert rates["many"] > 0.4 * LINE_BYTES_PER_S
    assert rates["many"] > 3 * rates["one"]
