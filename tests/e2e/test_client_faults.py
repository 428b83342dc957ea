"""The client when things go wrong: the right error, and nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.held_store import take, wait_for
from tests.faults import http_proxy
from tests.faults.http_rules import Rule

from skyplane_orchestration.errors import (
    NotFound,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
    TransferFailed,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.control import SubmittedTransfer

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.transfer.control import SubmittedTransfer

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@pytest.fixture
def slow(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    gate: FaultProxy,
    request: pytest.FixtureRequest,
) -> TransferJob:
    """Small objects, and large ones whose second parts wait at the gate."""
    bucket = "f-" + request.node.name.lower().translate(str.maketrans("_[]", "---"))[-50:].strip(
        "-"
    )
    for server in servers:
        server.make_bucket(bucket)
    source, destination = servers
    source.fill(bucket, "p/", {f"large{i}": os.urandom(6 * MIB) for i in range(2)})
    source.fill(bucket, "p/", {f"small{i}": os.urandom(100) for i in range(20)})
    return TransferJob(
        Location(f"s3://{bucket}/p/", source.region, source.endpoint),
        Location(f"s3://{bucket}/q/", destination.region, gate.url),
        limits=Limits(chunk_mib=5),
    )


class Once:
    """An `on_status` that acts once, as soon as the transfer is so far; then the gate opens."""

    def __init__(
        self, gate: FaultProxy, is_due: Callable[[TransferStatus], bool], act: Callable[[], None]
    ) -> None:
        self._gate, self._is_due, self._act = gate, is_due, act
        self.done = False

    def __call__(self, status: TransferStatus) -> None:
        if not self.done and status.is_running and self._is_due(status):
            self.done = True
            self._act()
            take(self._gate)


def in_full_swing(status: TransferStatus) -> bool:
    """Both uploads are open, and the lead has been told of them."""
    return len(status.open_uploads) == 2


def impatient(kit: ClientKit) -> Client:
    """Its gateways soon take a silent path for lost."""
    return kit.client(provisioner=kit.provisioner(gateway_settings={"ack_deadline_s": 4.0}))


@pytest.mark.parametrize("part", ["RELAY", ""])
def test_a_gateway_killed_in_mid_transfer(
    part: str,
    kit: ClientKit,
    slow: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
) -> None:
    """Without a replacement the fleet is brought up again."""
    client = impatient(kit)
    fleet = client.provision(kit.relayed())
    kill = Once(gate, in_full_swing, lambda: kit.kill(fleet, getattr(kit, part, "")))
    told: list[int] = []
    try:
        result = client.transfer(
            slow, fleet, on_status=kill, on_submitted=lambda _, where: told.append(where.epoch)
        )
        assert kill.done
        # The callback gets the restored fleet before there is a new lead.
        assert (result.failed, result.epoch, told) == (0, 2, [1, 1, 2])
        assert "the fleet was broken and was brought up again" in result.warnings
        assert len(kit.home.gateways()) == 3
    finally:
        client.teardown(fleet)
    kit.ended_well(slow, servers)


def test_gateways_told_to_end_in_mid_transfer(
    kit: ClientKit, slow: TransferJob, gate: FaultProxy, servers: tuple[S3Server, S3Server]
) -> None:
    """All at once: as when they are killed, but no deadline (minutes here) has to pass."""
    client = kit.client()
    fleet = client.provision(kit.relayed())
    end = Once(gate, in_full_swing, lambda: kit.terminate(fleet))
    try:
        result = client.transfer(slow, fleet, on_status=end)
        assert end.done
        assert (result.failed, result.epoch) == (0, 2)
        assert "the fleet was broken and was brought up again" in result.warnings
        assert len(kit.home.gateways()) == 3
    finally:
        client.teardown(fleet)
    kit.ended_well(slow, servers)


def test_a_lead_that_sleeps_is_replaced_and_does_no_harm_when_it_wakes(
    kit: ClientKit,
    slow: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from skyplane_orchestration.transfer import fleets
    from skyplane_orchestration.transfer.sessions import FleetSessions

    # An orchestrator that does not wait ten seconds for every answer.
    monkeypatch.setattr(fleets, "FleetSessions", partial(FleetSessions, timeout_s=1.0))
    client = impatient(kit)
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK), count=2))
    lead = fleet.sources[0]
    pid = int(lead.details["pid"])
    sleep = Once(gate, in_full_swing, lambda: os.kill(pid, signal.SIGSTOP))

    def wake(_: object, where: SubmittedTransfer) -> None:
        if where.epoch == 2:
            assert where.lead != lead.node
            os.kill(pid, signal.SIGCONT)

    try:
        result = client.transfer(slow, fleet, on_status=sleep, on_submitted=wake)
        assert sleep.done
        assert (result.failed, result.epoch) == (0, 2)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        client.teardown(fleet)
    kit.ended_well(slow, servers)


# -- the orchestrator itself is killed


ORCHESTRATOR = textwrap.dedent(
    """
    import json, sys, time
    from pathlib import Path
    from skyplane_orchestration.security.authority import FleetSecret
    from skyplane_orchestration.client import Client, FleetTimes
    from skyplane_orchestration.model.identity import RunIdentity
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

    given = json.loads(sys.stdin.read())
    client = Client(
        identity=RunIdentity("tests", "dag", "killed"),
        provisioner=LocalProvisioner(LocalOptions(run_root=Path(given["run_root"]))),
        secret=FleetSecret(b"a fleet secret of the client's tests"),
        times=FleetTimes(start_within_s=given["start_within_s"], lease_s=2.0, hard_end_s=120.0),
    )
    fleet = client.provision(TransferPlan.from_dict(given["plan"]))
    if given["submits"]:
        client.submit(TransferJob.from_dict(given["job"]), fleet)
    print("there", flush=True)
    time.sleep(600)
    """
)


@pytest.fixture
def killed(kit: ClientKit) -> Iterator[Callable[..., None]]:
    """`killed(job, submits=...)`: an orchestrator gets so far and is killed there."""
    import json

    def run(job: TransferJob, *, submits: bool, start_within_s: float) -> None:
        given = {
            "run_root": str(kit.home.run_root),
            "plan": kit.relayed().to_dict(),
            "job": job.to_dict(),
            "submits": submits,
            "start_within_s": start_within_s,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", ORCHESTRATOR],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=kit.home.environment,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            try:
                process.stdin.write(json.dumps(given))
                process.stdin.close()
                assert process.stdout.readline() == "there\n"
            finally:
                process.kill()
                process.wait()

    yield run
    # What a lease has ended leaves nothing for a sweep.
    assert kit.client().sweep().orphans == ()


def test_an_orchestrator_killed_before_it_submits(
    kit: ClientKit, slow: TransferJob, killed: Callable[..., None]
) -> None:
    killed(slow, submits=False, start_within_s=4.0)
    assert len(kit.home.gateways()) == 3
    wait_for(lambda: not kit.home.gateways(), "the end of the leases")


def test_an_orchestrator_killed_after_it_has_submitted(
    kit: ClientKit,
    slow: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    killed: Callable[..., None],
) -> None:
    """The transfer ends without an orchestrator, and then the leases end. The same run,
    later and on a fleet of its own, finds by the journal that all is done."""
    killed(slow, submits=True, start_within_s=60.0)
    assert len(kit.home.gateways()) == 3
    take(gate)
    wait_for(lambda: not kit.home.gateways(), "the end of the leases")
    assert kit.home.traces() == []
    bucket = slow.destination.bucket
    first = servers[1].objects(bucket, slow.destination.key)
    result = kit.client("killed").run(slow, plan=kit.relayed())
    assert (result.epoch, result.copied, result.failed) == (2, result.objects, 0)
    assert result.copied_earlier == result.objects > 0
    # The result is of both tries; this one only looked.
    assert {edge.sent_bytes for edge in result.edges} == {result.copied_bytes}
    own = result.this_try
    assert (own.copied, own.copied_bytes, own.cost.egress_usd) == (0, 0, 0.0)
    assert 0 < own.seconds < result.seconds
    assert servers[1].objects(bucket, slow.destination.key).items() <= first.items()
    kit.ended_well(slow, servers)


# -- input that cannot work


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    (made / "sub").mkdir(parents=True)
    (made / "a").write_bytes(b"1")
    return made


def refused(kit: ClientKit, job: TransferJob, client: Any = None) -> SkyplaneError:
    """The error of a run, which must come soon and before anything was built."""
    began_s = time.monotonic()
    with pytest.raises(SkyplaneError) as caught:
        (client or kit.client()).run(job)
    assert kit.home.traces() == []
    assert time.monotonic() - began_s < 60, "seconds, not minutes"
    return caught.value


def test_a_missing_bucket_at_either_end(
    kit: ClientKit, servers: tuple[S3Server, S3Server], folder: Path
) -> None:
    missing = Location("s3://no-such-bucket/p/", endpoint_url=servers[0].endpoint)
    for known in (missing, missing.at(servers[0].region)):
        there = Location(f"{folder}/")
        assert isinstance(refused(kit, TransferJob(known, there)), NotFound)
        error = refused(kit, TransferJob(there, known))
        assert isinstance(error, NotFound)
        assert "no-such-bucket" in error.message


def test_an_endpoint_that_does_not_answer(kit: ClientKit, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    nowhere = Location("s3://b/p/", "aws:us-east-1", f"http://127.0.0.1:{port}")
    error = refused(kit, TransferJob(nowhere, Location(f"{folder}/")))
    assert isinstance(error, StoreUnavailable), error
    assert not error.is_permanent


def test_an_endpoint_that_is_no_object_store(kit: ClientKit, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        job = TransferJob(Location("s3://b/p/", "aws:us-east-1", url), Location(f"{folder}/"))
        assert isinstance(refused(kit, job), StoreError)
        listener.shutdown(socket.SHUT_RDWR)


def test_a_file_in_the_place_of_the_destinations_folder(kit: ClientKit, folder: Path) -> None:
    (folder.parent / "out").write_bytes(b"in the way")
    with pytest.raises(SkyplaneError) as caught:
        kit.client().run(TransferJob(Location(f"{folder}/"), Location(f"{folder.parent}/out/x/")))
    assert caught.value.is_permanent or isinstance(caught.value, TransferFailed)
    assert (folder.parent / "out").read_bytes() == b"in the way"


def test_a_destination_that_cannot_be_written(kit: ClientKit, folder: Path) -> None:
    """Root may write nearly everywhere, but not in /proc."""
    with pytest.raises(SkyplaneError) as caught:
        kit.client().run(TransferJob(Location(f"{folder}/"), Location("/proc/sys/nowhere/")))
    assert "/proc/sys/nowhere" in caught.value.message


def test_an_object_that_vanishes_after_it_was_listed(
    kit: ClientKit, servers: tuple[S3Server, S3Server]
) -> None:
    """Objects go in the order of their keys; the last is deleted while the first moves."""
    source, destination = servers
    for server in servers:
        server.make_bucket("vanishing")
    source.fill("vanishing", "p/", {f"{i:02}": os.urandom(5 * MIB) for i in range(16)})
    client = kit.client()
    # A sink with room for two chunks: the others wait in the listing.
    small = kit.client(provisioner=kit.provisioner(gateway_settings={"assembly_mib": 10}))
    fleet = small.provision(kit.relayed())

    moves = Rule("hold", method="PUT", target="/q/[0-9]", times=0)
    with http_proxy.running(destination.endpoint, [moves]) as proxy:
        job = TransferJob(
            Location("s3://vanishing/p/", source.region, source.endpoint),
            Location("s3://vanishing/q/", destination.region, proxy.url),
            limits=Limits(chunk_mib=5),
        )

        def delete(fleet: Fleet, submitted: SubmittedTransfer) -> None:
            wait_for(lambda: client.status(fleet, submitted).objects == 16, "the listing")
            source.client().delete_object(Bucket="vanishing", Key="p/15")
            take(proxy)

        try:
            with pytest.raises(TransferFailed) as caught:
                client.transfer(job, fleet, on_submitted=delete)
        finally:
            client.teardown(fleet)
    result: Any = caught.value.result
    assert (result.copied, result.failed, result.error_code) == (15, 1, "objects-failed")
    (failure,) = result.failures
    assert (failure.source, failure.code) == ("s3://vanishing/p/15", "not-found")
    found = destination.digests("vanishing", "q/")
    # What a run after this one goes on by.
    (journal,) = (key for key in found if key.startswith(".skyplane/jobs/"))
    assert found == {**source.digests("vanishing", "p/"), journal: found[journal]}
    assert destination.open_uploads("vanishing") == []


def test_a_failed_transfer_is_resumed_by_its_handle(kit: ClientKit, folder: Path) -> None:
    out = folder.parent / "out"
    (out / "a").mkdir(parents=True)
    (out / "a/in-the-way").write_bytes(b"")
    (folder / "b").write_bytes(b"2")
    job = TransferJob(Location(f"{folder}/"), Location(f"{out}/"), conflict="skip")
    with pytest.raises(TransferFailed) as caught:
        kit.client().run(job)
    result: Any = caught.value.result
    assert (result.copied, result.failed) == (1, 1)
    assert kit.home.traces() == []
    (out / "a/in-the-way").unlink()
    (out / "a").rmdir()
    resumed = kit.client("of somebody else").resume(result.resume_handle)
    assert (resumed.epoch, resumed.failed) == (2, 0)
    assert resumed.transfer_key == result.transfer_key
    assert (out / "a").read_bytes() == b"1"
    assert (out / "b").read_bytes() == b"2"


def test_no_secret_shows_anywhere(
    kit: ClientKit,
    slow: TransferJob,
    gate: FaultProxy,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", logger="skyplane_orchestration")
    client = kit.client()
    fleet = client.provision(kit.relayed())
    shown: list[str] = [repr(fleet), str(fleet.to_dict()), repr(client.authority(fleet.key))]
    looked = Once(gate, in_full_swing, lambda: shown.extend(kit.home.visible()))
    try:
        result = client.transfer(slow, fleet, on_status=looked)
        shown += [repr(result), *kit.home.visible()]
    finally:
        report = client.teardown(fleet)
    assert looked.done
    shown += [repr(report), caplog.text]
    assert len(shown) > 12
    for text in shown:
        assert not [secret for secret in kit.secrets if secret in text]
