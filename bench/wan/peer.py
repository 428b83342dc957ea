"""iperf3 over the lines of an area, as many bytes and connections as a plan has."""

from __future__ import annotations

import json
import shutil
import subprocess

from bench.wan.area import Area
from bench.wan.network import Unavailable
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.units import gb_to_bytes, gbps_of


def iperf3_gbps(area: Area, plan: TransferPlan) -> float:
    """What arrived over the plan's direct path, from the first byte to the last.

    Raises Unavailable where there is no iperf3.
    """
    if shutil.which("iperf3") is None:
        raise Unavailable("there is no iperf3 to compare with")
    made = area.network
    (edge,) = (one for one in plan.edges if (one.src, one.dst) == (plan.src, plan.dst))
    server = subprocess.Popen(
        [*made.enter(plan.dst), "iperf3", "-s", "-1", "-i", "0", "--forceflush"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    with server.stdout:
        while "listening" not in server.stdout.readline():
            pass
        command = [*made.enter(plan.src), "iperf3", "-J", "-c", made.address(plan.dst)]
        command += ["-P", str(edge.connections), "-n", str(gb_to_bytes(plan.volume_gb or 0.0))]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        server.stdout.read()
    server.wait()
    got = json.loads(done.stdout)["end"]["sum_received"]
    return gbps_of(got["bytes"], got["seconds"])
