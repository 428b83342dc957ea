"""The client from plan to teardown, with real gateways: what works."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from skyplane_gateway.common.checksum import crc32c
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.progress_log import ProgressMeter
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit


pytestmark = pytest.mark.e2e

MIB = 1 << 20
CHUNK = 5 * MIB
Tree = dict[str, bytes]


def write_tree(folder: Path, tree: Tree) -> None:
    for name, body in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)


def read_tree(folder: Path) -> Tree:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def tree() -> Tree:
    odd = [
        "a b+c%2B%20",
        "new\nline",
        "\u00e4\u0308 \u00e4",
        "\U0001f600",
        "'\"\\;$(x)",
        "-n",
        "#?&",
    ]
    return {
        "empty": b"",
        "one": b"x",
        **{f"odd/{name}": name.encode() for name in odd},
        **{f"many/{i:03}": os.urandom(i) for i in range(300)},
        "deep/" + "d/" * 20 + "leaf": b"leaf",
        "chunk-1": os.urandom(CHUNK - 1),
        "chunk": os.urandom(CHUNK),
        "chunk+1": os.urandom(CHUNK + 1),
        "two-chunks": os.urandom(2 * CHUNK),
        "many-chunks": os.urandom(4 * CHUNK + 12345),
        "_SUCCESS": b"",
    }


@pytest.fixture
def files(tmp_path: Path, tree: Tree) -> TransferJob:
    write_tree(tmp_path / "source", tree)
    return TransferJob(
        Location(f"{tmp_path}/source/"),
        Location(f"{tmp_path}/to/here/"),
        limits=Limits(chunk_mib=5),
    )


@pytest.fixture
def small(tmp_path: Path) -> TransferJob:
    write_tree(tmp_path / "few", {"a": b"1", "b": b"2", "c/d": b"3"})
    return TransferJob(Location(f"{tmp_path}/few/"), Location(f"{tmp_path}/to/"))


def test_one_call_copies_a_folder_also_over_a_relay(
    kit: ClientKit, files: TransferJob, tree: Tree, tmp_path: Path
) -> None:
    """With two gateways in every region."""
    seen: list[TransferStatus] = []
    plan = kit.plan((kit.SOURCE, kit.SINK), (kit.SOURCE, kit.RELAY, kit.SINK), count=2)
    result = kit.client().run(
        files, plan=plan, on_status=seen.append, manifest=f"{tmp_path}/manifest.parquet"
    )
    assert read_tree(tmp_path / "to" / "here") == tree
    assert result.succeeded
    assert (result.objects, result.copied, result.failed) == (len(tree), len(tree), 0)
    assert result.copied_bytes == sum(map(len, tree.values()))
    assert TransferResult.from_dict(result.to_dict()) == result
    assert not seen[-1].is_running
    assert [row.copied for row in seen] == sorted(row.copied for row in seen)
    sent = {(edge.src, edge.dst): edge.sent_bytes for edge in result.edges}
    assert sent[kit.SOURCE, kit.SINK] + sent[kit.RELAY, kit.SINK] == result.copied_bytes
    assert sent[kit.SOURCE, kit.RELAY] == sent[kit.RELAY, kit.SINK] > 0

    assert result.manifest_uri == f"file://{tmp_path}/manifest.parquet"
    rows = pq.read_table(tmp_path / "manifest.parquet").to_pylist()
    assert {row["source"].removeprefix(files.source.url): row["bytes"] for row in rows} == {
        name: len(body) for name, body in tree.items()
    }
    by_name = {row["destination"].removeprefix(files.destination.url): row for row in rows}
    for name, body in tree.items():
        assert (by_name[name]["state"], by_name[name]["crc32c"]) == ("copied", crc32c(body))
        assert by_name[name]["code"] is None


def test_two_transfers_at_once_on_one_fleet(kit: ClientKit, tmp_path: Path) -> None:
    jobs = []
    for name in ("x", "y"):
        write_tree(tmp_path / name, {f"{name}{i}": os.urandom(MIB) for i in range(12)})
        jobs.append(
            TransferJob(Location(f"{tmp_path}/{name}/"), Location(f"{tmp_path}/to-{name}/"))
        )
    client = kit.client()
    fleet = client.provision(kit.relayed())
    try:
        submitted = [client.submit(job, fleet) for job in jobs]
        pairs = zip(jobs, submitted, strict=True)
        results = [client.finish(WatchedTransfer(job, fleet, row)) for job, row in pairs]
        assert [result.copied for result in results] == [12, 12]
    finally:
        client.teardown(fleet)
    for name in ("x", "y"):
        assert read_tree(tmp_path / f"to-{name}") == read_tree(tmp_path / name)


def test_many_transfers_on_one_fleet_hold_nothing_open(
    kit: ClientKit, small: TransferJob, tmp_path: Path
) -> None:
    client = kit.client()
    fleet = client.provision(kit.relayed())

    def descriptors() -> dict[str, int]:
        ours = len(os.listdir("/proc/self/fd"))
        theirs = {
            handle.node: len(os.listdir(f"/proc/{handle.details['pid']}/fd"))
            for handle in fleet.gateways
        }
        return {"client": ours, **theirs}

    def transfer(number: int) -> None:
        job = replace(small, destination=Location(f"{tmp_path}/to-{number}/"))
        assert client.transfer(job, fleet).copied == 3

    try:
        for number in range(3):
            transfer(number)
        before = descriptors()
        for number in range(3, 12):
            transfer(number)
        # A long poll or two may still be on its way out.
        after = descriptors()
        assert {
            name: after[name] - before[name] for name in before if after[name] > before[name] + 4
        } == {}
    finally:
        client.teardown(fleet)


@pytest.mark.long
@pytest.mark.parametrize("place", ["inside", "processes"])
def test_the_progress_grows_while_the_first_chunk_is_on_its_way(
    kit: ClientKit, tmp_path: Path, place: str
) -> None:
    """An object of one chunk has no receipt before its end."""
    client = kit.client(provisioner=kit.inside()) if place == "inside" else kit.client()
    write_tree(tmp_path / "source", {"large": os.urandom(8 * MIB)})
    job = TransferJob(
        Location(f"{tmp_path}/source/"), Location(f"{tmp_path}/to/"), bwlimit="5M", volume_gb=0.008
    )
    meter, seen = ProgressMeter(), []

    def on_status(status: TransferStatus) -> None:
        if status.is_running and not any(status.delivered_bytes.values()):
            seen.append(meter.measure(status).done_bytes)

    assert client.run(job, on_status=on_status).copied == 1
    assert seen == sorted(seen)
    assert len({found for found in seen if 0 < found < 8 * MIB}) >= 1
