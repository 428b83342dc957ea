"""Real gateways end without renewal, and a sweep removes what they leave."""

from __future__ import annotations

import json
import os
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults import http_proxy
from tests.faults.http_rules import Rule

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

MIB = 1 << 20
FOREVER_S = 3600.0

#: A gateway whose store does not answer when it ends has 3 s to clear up, in place of 30.
GATEWAY = textwrap.dedent(
    """
    from skyplane_gateway import main
    from skyplane_gateway.control_server import open_gateway

    assert open_gateway._CLOSE_TIMEOUT_S == 30.0
    open_gateway._CLOSE_TIMEOUT_S = 3.0
    main.entry_point()
    """
)

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
    from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

    given = json.loads(sys.stdin.read())
    options = LocalOptions(
        run_root=Path(given["run_root"]),
        command=(sys.executable, "-c", given["gateway"]),
        gateway_settings={"ack_deadline_s": 2.0},
    )
    client = Client(
        identity=RunIdentity("tests", "dag", "gone"),
        provisioner=LocalProvisioner(options),
        secret=FleetSecret(b"a fleet secret of the client's tests"),
        times=FleetTimes(start_within_s=120.0, lease_s=3.0, hard_end_s=600.0),
    )
    fleet = client.provision(TransferPlan.from_dict(given["plan"]))
    job = TransferJob.from_dict(given["job"])
    watched = WatchedTransfer(job, fleet, client.submit(job, fleet))
    watch = client.watch(
        watched, on_status=lambda status: print(json.dumps(status.open_uploads), flush=True)
    )
    while True:
        watch.poll()
        time.sleep(0.1)
    """
)


@pytest.fixture
def stuck(servers: tuple[S3Server, S3Server]) -> Iterator[TransferJob]:
    """Of two large objects a part arrives each, then the destination answers no more."""
    source, destination = servers
    for server in servers:
        server.make_bucket("leases")
    source.fill("leases", "p/", {f"sub/large{i}": os.urandom(11 * MIB) for i in range(2)})
    source.fill("leases", "p/", {"a": b"x"})
    rule = Rule("delay", "PUT", "partNumber=[23]", times=0, delay_s=FOREVER_S)
    with http_proxy.running(destination.endpoint, [rule]) as proxy:
        yield TransferJob(
            Location("s3://leases/p/", source.region, source.endpoint),
            Location("s3://leases/q/", destination.region, proxy.url),
            limits=Limits(chunk_mib=5),
        )


def orchestrate(kit: ClientKit, job: TransferJob, until: Callable[[Any], bool]) -> None:
    """An orchestrator of its own brings the transfer so far, and is killed there."""
    given = {
        "run_root": str(kit.home.run_root),
        "gateway": GATEWAY,
        "plan": kit.relayed().to_dict(),
        "job": job.to_dict(),
    }
    with kit.home.orchestrator(ORCHESTRATOR, given) as lines:
        assert any(until(json.loads(line)) for line in lines), "it ended by itself"


def journals(job: TransferJob, server: S3Server) -> list[str]:
    keys = server.digests(job.destination.bucket, "q/")
    return [key for key in keys if key.startswith(".skyplane/")]


def test_gateways_without_an_orchestrator_end_and_a_sweep_removes_their_uploads(
    kit: ClientKit, stuck: TransferJob, servers: tuple[S3Server, S3Server]
) -> None:
    """No gateway outlives it by much; a day later a sweep takes the journal and its uploads."""
    _, destination = servers
    bucket, keys = stuck.destination.bucket, ["q/sub/large0", "q/sub/large1"]
    orchestrate(kit, stuck, until=lambda uploads: len(uploads) == 2)
    assert len(kit.home.gateways()) == 3
    kit.home.wait_until(lambda: len(kit.home.gateways()) < 3, "the first end of a lease")
    # The sink ends last: what it is writing has its time to come to an end.
    kit.home.wait_until(lambda: not kit.home.gateways(), "the end of all leases")
    assert kit.home.traces() == []
    assert sorted(destination.open_uploads(bucket)) == keys
    assert journals(stuck, destination)

    whole = Location(f"s3://{bucket}/", destination.region, destination.endpoint)
    early = kit.client("janitor").sweep(destinations=[whole], orphaned_uploads=True)
    assert [row.outcome for row in early.places[0].transfers] == ["kept"]
    late = kit.client("janitor", clock=Clock(wall=lambda: time.time() + 2 * RESUME_TTL_S))
    dry = late.sweep(destinations=[whole], dry_run=True)
    (row,) = dry.places[0].transfers
    assert sorted(each.url for each in row.uploads) == [f"s3://{bucket}/{key}" for key in keys]
    assert sorted(destination.open_uploads(bucket)) == keys

    wet = late.sweep(destinations=[whole])
    assert (wet.left, wet.orphans) == ((), ())
    assert [row.outcome for row in wet.places[0].transfers] == ["removed"]
    assert destination.open_uploads(bucket) == []
    assert set(destination.digests(bucket)) == {"q/a"}
