"""The emulated wide area: its switch, its scenarios and its figures."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.wan import area, network, scenario, stores
from bench.wan.__main__ import main, remaining_gbps
from bench.wan.network import Network, Pair
from bench.wan.picture import Bars, svg
from bench.wan.scaled_grid import write_scaled
from bench.wan.scenario import Event, Line, Scenario

from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)

A, R, B = "aws:us-east-1", "aws:us-east-2", "aws:us-west-2"

ANSWERS = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        with listener.accept()[0] as end:
            while got := end.recv(65536):
                end.sendall(got)
"""


@pytest.fixture
def lines() -> Iterator[Network]:
    try:
        with network.opened(("here", "there")) as made:
            yield made
    except network.Unavailable as error:
        pytest.skip(str(error))


@contextlib.contextmanager
def answering(lines: Network, node: str) -> Iterator[tuple[str, int]]:
    """A server at a node that sends back what it receives."""
    process = subprocess.Popen(
        [*lines.enter(node), sys.executable, "-c", ANSWERS, lines.address(node)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield lines.address(node), int(process.stdout.readline())
        finally:
            process.kill()
            process.wait()


def echo(address: tuple[str, int], body: bytes) -> bytes:
    with socket.create_connection(address, timeout=20) as end:
        end.sendall(body)
        end.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: end.recv(65536), b""))


@pytest.mark.root
def test_bytes_arrive_whole_and_are_counted_by_pair_and_connection(lines: Network) -> None:
    lines.set_line(network.HOST, "there", Pair(0.02, 0.1, loss=0.05))
    body = os.urandom(2 << 20)
    with answering(lines, "there") as address:
        assert echo(address, body) == body
    counts = lines.counts()
    assert counts.payload_bytes[network.HOST, "there"] >= len(body)
    (flow,) = [one for one in counts.flows if one.to_port == address[1]]
    # What is lost is sent again; what is sent again has left twice.
    assert flow.payload_bytes > len(body)
    assert counts.lost[network.HOST, "there"] > 0


@pytest.mark.root
def test_a_line_that_loses_everything_carries_nothing(lines: Network) -> None:
    lines.set_line(network.HOST, "here", Pair(0.0, loss=1.0))
    with pytest.raises(TimeoutError):
        socket.create_connection((lines.address("here"), 1), timeout=0.3)
    counts = lines.counts()
    assert counts.lost[network.HOST, "here"] > 0
    assert counts.payload_bytes[network.HOST, "here"] == 0


OPENS = """
import subprocess, sys
from bench.wan import network
with network.opened(("here", "there")) as made:
    command = [*made.enter("here"), "sh", "-c", "echo $$; exec sleep 600"]
    subprocess.Popen(command, start_new_session=True)
    sys.stdin.read()
"""


@pytest.mark.root
def test_a_kill_of_who_opened_it_leaves_no_process_in_its_namespaces(lines: Network) -> None:
    opener = subprocess.Popen(
        [sys.executable, "-c", OPENS],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert opener.stdout is not None
    assert opener.stdin is not None
    with opener.stdout, opener.stdin:
        left = os.pidfd_open(int(opener.stdout.readline()))
        opener.send_signal(signal.SIGKILL)
        opener.wait()
    # A descriptor of a process is readable once it has ended.
    select.select([left], [], [])
    os.close(left)


def plan_of(*paths: tuple[tuple[str, ...], float]) -> TransferPlan:
    edges = {edge: flow for regions, flow in paths for edge in pairwise(regions)}
    return TransferPlan(
        src=A,
        dst=B,
        objective={},
        throughput_gbps=sum(flow for _, flow in paths),
        volume_gb=None,
        transfer_s=None,
        provision_s=0.0,
        cost=PlanCost(None, None, None, None, 0.0),
        instances={region: InstanceGroup("process", 1) for region in (A, R, B)},
        edges=tuple(PlanEdge(*edge, flow, 32, flow, 0.0) for edge, flow in edges.items()),
        paths=tuple(PlanPath(*path) for path in paths),
        binding=(),
        solver=SolverReport("optimal", 0.0, 0.0, 0.0),
        grid=GridReference("test", "2024-01-01", "measured"),
    )


PLAN = plan_of(((A, B), 0.2), ((A, R, B), 0.6))
SCENARIO = Scenario("", "shipped", ((A, B),), {})


@pytest.mark.parametrize(
    ("changed", "gbps"),
    [
        (SCENARIO, 0.8),
        (replace(SCENARIO, events=(Event(0.3, kill=R),)), 0.2),
        (replace(SCENARIO, events=(Event(0.3, src=R, dst=B, rate_share=0.5),)), 0.5),
        (replace(SCENARIO, lines=(Line(A, B, rate_share=0.5),)), 0.7),
        (replace(SCENARIO, lines=(Line(A, B, loss=0.001),)), 0.8),
    ],
)
def test_what_remains_is_what_the_paths_carry_afterwards(changed: Scenario, gbps: float) -> None:
    assert remaining_gbps(PLAN, changed) == pytest.approx(gbps)


@pytest.mark.parametrize(
    ("words", "clue"),
    [
        (["nope"], "nope"),
        (["--plan", "/nope.json"], "/nope.json"),
        (["--plan", str(scenario.FOLDER / "b.toml")], "Expecting value"),
        (["b", "--transfers", "21"], "from 1 to 20 for b"),
        (["b", "--transfers", "x"], "'x'"),
        (["b", "--scale", "0"], "--scale"),
        (["b", "--rounds", "0"], "--rounds"),
        (["--plan", "{plan}", "--grid", "nope"], "no grid 'nope'"),
    ],
)
def test_bad_input_is_told_in_one_line(
    words: list[str], clue: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plan := tmp_path / "plan.json").write_text(json.dumps(PLAN.to_dict()))
    assert main([word.format(plan=plan) for word in words]) == 2
    said = capsys.readouterr()
    assert clue in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""


@pytest.mark.parametrize("name", scenario.names())
def test_scenarios_are_between_regions_of_their_grids(name: str) -> None:
    found = scenario.load(name)
    tags = set(found.regions or load_grid(found.grid).tags)
    assert {end for pair in found.transfers for end in pair} <= tags
    assert {end for line in found.lines for end in (line.src, line.dst)} <= tags


@pytest.mark.parametrize("region", ["aws:us-east-1", "gcp:us-east1", "azure:eastus"])
def test_objects_that_differ_between_two_places_are_named(region: str, tmp_path: Path) -> None:
    try:
        with stores.running(region, tmp_path / "store", "127.0.0.1", ()) as store:
            for key in ("one/same", "two/same", "one/other", "one/less", "two/more"):
                store.objects.put(key, b"as it is")
            store.objects.put("two/other", b"as it was")
            assert area.differing(store, "one", store, "two") == ["less", "more", "other"]
            store.objects.remove("two/")
            assert store.digests("two") == {}
            assert len(store.digests("one")) == 3
    except network.Unavailable as error:
        pytest.skip(str(error))


def test_a_scaled_grid_has_the_prices_and_a_share_of_the_rates(tmp_path: Path) -> None:
    grid = load_grid()
    write_scaled(grid, (A, B), 10.0, tmp_path / "grid")
    scaled = load_grid(tmp_path / "grid")
    assert scaled.tags == (A, B)
    edge, other = (scaled.index_of(A), scaled.index_of(B)), (grid.index_of(A), grid.index_of(B))
    assert scaled.throughput_gbps[edge] == pytest.approx(grid.throughput_gbps[other] / 10, 1e-4)
    assert scaled.rtt_ms[edge] == pytest.approx(grid.rtt_ms[other], 1e-4)
    assert scaled.egress_price(A, B) == pytest.approx(grid.egress_price(A, B), 1e-4)
    kinds = grid.instance_type("aws"), scaled.instance_type("aws")
    assert kinds[1].egress_gbps == pytest.approx(kinds[0].egress_gbps / 10)
    assert kinds[1].usd_per_hour == pytest.approx(kinds[0].usd_per_hour / 10)


def test_a_picture_has_a_bar_for_every_rate_that_is_known() -> None:
    text = svg("<title>", [Bars("one", 0.8, None, 0.75, 0.7), Bars("other", 0.4, 0.41, 0.4, 0.39)])
    bars = ElementTree.fromstring(text).findall("{http://www.w3.org/2000/svg}rect")
    assert len(bars) == 4 + 7  # The legend has four.
