"""Servers and processes of the end-to-end tests: two S3 servers, a private home."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from tests.clouds.fakes import open_ec2
from tests.clouds.gateways import GATEWAY, settings_here
from tests.e2e import image as images
from tests.e2e.beside import Beside
from tests.e2e.held_store import MIB, HeldStore, held_store, wait_for, write_objects
from tests.e2e.processes import processes_with
from tests.faults import go_programs, http_proxy, moto_server, versitygw
from tests.faults.http_rules import Rule
from tests.ports import free_port
from tests.transfer import samples

from skyplane_gateway.common.objects import MANIFEST_FOLDER
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import (
    InstanceGroup,
    PlanEdge,
    PlanPath,
    TransferPlan,
)
from skyplane_orchestration.provision.in_process.small_jobs import SmallJobsProvisioner
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.provision.provisioner import TeardownReport
from skyplane_orchestration.security.authority import FleetSecret
from skyplane_orchestration.transfer.fleets import Fleets
from strict_clouds.ec2 import StrictEc2
from strict_clouds.world import World

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skyplane_orchestration.model.job import TransferJob

#: What a gateway is trusted with; it stands nowhere that others can look.
STORE_SECRET = "hush-" + "0123456789abcdef" * 2

SOURCE_REGION, DESTINATION_REGION = "aws:ap-southeast-2", "aws:eu-west-3"


@dataclass(frozen=True)
class S3Server:
    """A moto server in a process of its own, standing for the S3 of one region."""

    endpoint: str
    region: str

    def client(self) -> S3Client:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region.partition(":")[2],
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}),
        )

    def make_bucket(self, name: str) -> str:
        place = {"LocationConstraint": self.region.partition(":")[2]}
        self.client().create_bucket(Bucket=name, CreateBucketConfiguration=place)  # type: ignore[arg-type]
        return name

    def fill(self, bucket: str, prefix: str, objects: Mapping[str, bytes]) -> None:
        client = self.client()
        for key, body in objects.items():
            client.put_object(
                Bucket=bucket,
                Key=prefix + key,
                Body=body,
                ContentType="text/x-test",
                Metadata={"owner": "somebody"},
            )

    def digests(self, bucket: str, prefix: str = "") -> dict[str, str]:
        """Key below the prefix -> SHA-256 of the content; without manifests."""
        client, found = self.client(), {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for row in page.get("Contents", []):
                if f"/{MANIFEST_FOLDER}" in f"/{row['Key']}":
                    continue
                body = client.get_object(Bucket=bucket, Key=row["Key"])["Body"].read()
                found[row["Key"].removeprefix(prefix)] = hashlib.sha256(body).hexdigest()
        return found

    def objects(self, bucket: str, prefix: str = "") -> dict[str, tuple[str, str]]:
        """Key below the prefix -> SHA-256 of the content, and all that travels with it."""
        client, found = self.client(), {}
        for key, digest in self.digests(bucket, prefix).items():
            head = client.head_object(Bucket=bucket, Key=prefix + key)
            head["Metadata"].pop("skyplanesource", None)  # The mark of a copy.
            found[key] = digest, repr((head["ContentType"], head["Metadata"]))
        return found

    def open_uploads(self, bucket: str) -> list[str]:
        uploads = self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
        return [upload["Key"] for upload in uploads]


@contextlib.contextmanager
def serving(region: str, folder: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """An S3 server; at another host than loopback, it listens on all of this machine's."""
    port = free_port()
    listens = host if host.startswith("127.") else "0.0.0.0"
    command = [sys.executable, moto_server.__file__, "-H", listens, "-p", str(port)]
    with go_programs.running(command, port, folder / "moto.log", {}):
        yield S3Server(f"http://{host}:{port}", region)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[S3Server, S3Server]]:
    """Source and destination: two servers that know nothing of each other."""
    one, other = (tmp_path_factory.mktemp(end) for end in ("source", "destination"))
    with serving(SOURCE_REGION, one) as source, serving(DESTINATION_REGION, other) as destination:
        yield source, destination


def filled(servers: tuple[S3Server, S3Server], bucket: str) -> TransferJob:
    """A job between new buckets of that name: an object in parts, one in a folder, an empty one."""
    source, destination = servers
    for server in servers:
        server.make_bucket(bucket)
    source.fill(bucket, "p/", {"large": os.urandom(9 * MIB), "a/b": b"x", "empty": b""})
    return TransferJob(
        Location(f"s3://{bucket}/p/", source.region, source.endpoint),
        Location(f"s3://{bucket}/q/", destination.region, destination.endpoint),
        limits=Limits(chunk_mib=5),
    )


def words_of(job: TransferJob) -> list[str]:
    """Ends of a job as arguments of the command."""
    words = [job.source.url, job.destination.url]
    for side, end in (("src", job.source), ("dst", job.destination)):
        words += [f"--{side}-region", end.region, f"--{side}-endpoint", end.endpoint_url]
    return words


_SHOWN = ("cmdline", "environ")


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[versitygw.Server]:
    """An S3 server that checks preconditions and checksums, and tells those of parts."""
    try:
        with versitygw.running(tmp_path_factory.mktemp("store")) as server:
            yield server
    except versitygw.Unavailable as error:
        pytest.skip(str(error))


def _has_ended(pid: int) -> bool:
    """Its sockets are closed, too: it loses its command line before them."""
    states = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # It ended just now.
            states.add(thread.read_text().rpartition(")")[2].split()[0])
    return states <= {"Z", "X"}


@dataclass(frozen=True)
class Home:
    """A user of their own: secret and fleets below one directory.

    `more` is added to the environment.
    """

    directory: Path
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_root(self) -> Path:
        return self.directory / "run" / "skyplane-orch"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {
            **kept,
            "HOME": str(self.directory),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_RUNTIME_DIR": str(self.directory / "run"),
            "XDG_STATE_HOME": str(self.directory / "state"),
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": STORE_SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            **self.more,
        }

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        """Poll a condition that other processes bring about."""
        wait_for(holds, what)

    def gateways(self) -> list[int]:
        """Process ids of all gateways of this home."""
        return processes_with(str(self.run_root))

    def kill(self, pids: Collection[int]) -> None:
        """End gateways without warning, and wait until nothing of them answers any more."""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: all(map(_has_ended, pids)), "the end of gateways")

    @contextlib.contextmanager
    def orchestrator(self, code: str, given: Any, *arguments: str) -> Iterator[IO[str]]:
        """A process of its own that gets `given` as JSON; what it prints. Killed at the end."""
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            process.stdin.write(json.dumps(given))
            process.stdin.close()
            try:
                yield process.stdout
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()

    def visible(self) -> list[str]:
        """Command lines and environments of the gateways, and every file that they have."""
        texts = []
        paths = [Path(f"/proc/{pid}/{what}") for pid in self.gateways() for what in _SHOWN]
        for path in (*paths, *self.run_root.rglob("*")):
            # A gateway may end, and take its files along, at any moment.
            with contextlib.suppress(OSError):
                if path.is_file():
                    texts.append(path.read_bytes().decode(errors="replace"))
        return texts

    def traces(self) -> list[str]:
        """What is left of fleets: directories and processes."""
        left = [str(path) for path in self.run_root.glob("*")] if self.run_root.is_dir() else []
        return left + [f"process {pid}" for pid in self.gateways()]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    for name in ("run", "config"):
        (tmp_path / "home" / name).mkdir(parents=True, mode=0o700)
    made = Home(tmp_path / "home")
    yield made
    for pid in made.gateways():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def gate(servers: tuple[S3Server, S3Server]) -> Iterator[http_proxy.FaultProxy]:
    """The destination server; of an upload the first part comes through, the others wait.

    So a transfer is in full swing until the test lets it go on (`held_store.take`) or lets
    it lose what waits (`held_store.refuse`), however fast or slow the machine is.
    """
    rule = Rule("hold", method="PUT", target="partNumber=([2-9]|1[0-9])", times=0)
    with http_proxy.running(servers[1].endpoint, [rule]) as proxy:
        yield proxy


class ClientKit:
    """Clients of one home in this process, and plans for them."""

    SOURCE, RELAY, SINK = SOURCE_REGION, "gcp:asia-northeast1", DESTINATION_REGION

    def __init__(self, home: Home) -> None:
        self.home = home
        self.secret = FleetSecret(b"a fleet secret of the client's tests")

    def provisioner(self, **options: Any) -> LocalProvisioner:
        return LocalProvisioner(LocalOptions(run_root=self.home.run_root, **options))

    def inside(self) -> SmallJobsProvisioner:
        """One whose gateways run inside this process."""
        outside = self.provisioner()
        return SmallJobsProvisioner(outside, outside.root, "never", is_small=lambda _: True)

    def client(self, run: str = "run", **more: Any) -> Client:
        """Every call is a worker of its own; the same run has the same fleets."""
        settings = {
            "identity": RunIdentity("tests", "dag", run),
            "provisioner": self.provisioner(),
            "secret": self.secret,
            "poll_s": 0.02,
        }
        return Client(**{**settings, **more})

    def plan(self, *paths: Sequence[str], count: int = 1) -> TransferPlan:
        """A plan of the given paths, with `count` instances in every region."""
        regions = list(dict.fromkeys(region for path in paths for region in path))
        hops = dict.fromkeys(hop for path in paths for hop in pairwise(path))
        return replace(
            samples.PLAN,
            src=paths[0][0],
            dst=paths[0][-1],
            throughput_gbps=float(len(paths)),
            instances={region: InstanceGroup("process", count) for region in regions},
            edges=tuple(PlanEdge(*hop, 1.0, 2 * count, 5.0, 0.0) for hop in hops),
            paths=tuple(PlanPath(tuple(path), 1.0) for path in paths),
        )

    def relayed(self) -> TransferPlan:
        return self.plan((self.SOURCE, self.RELAY, self.SINK))

    @property
    def secrets(self) -> tuple[str, ...]:
        return STORE_SECRET, self.secret.value.decode()

    def ended_well(self, job: TransferJob, servers: tuple[S3Server, S3Server]) -> None:
        """The destination has all objects, with their metadata, and nothing else is left."""
        source, destination = servers
        wanted = source.objects(job.source.bucket, job.source.key)
        assert destination.objects(job.destination.bucket, job.destination.key) == wanted
        assert destination.open_uploads(job.destination.bucket) == []
        assert self.home.traces() == []

    def kill(self, fleet: Fleet, which: str = "") -> None:
        """End its gateways (of one region, or of one node) without warning."""
        self.home.kill(self._pids(fleet, which))

    @staticmethod
    def _pids(fleet: Fleet, which: str) -> set[int]:
        return {
            int(handle.details["pid"])
            for handle in fleet.gateways
            if which in ("", handle.region, handle.node)
        }


@pytest.fixture
def kit(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[ClientKit]:
    """Afterwards nothing may be left: no process, no file; and no secret may have shown."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    made = ClientKit(home)
    caplog.set_level("INFO", logger="skyplane_orchestration")
    leaks: list[str] = []
    teardown = Fleets.teardown

    def look_first(fleets: Fleets, fleet: Fleet | str) -> TeardownReport:
        shown = home.visible()
        leaks.extend(text for text in shown for secret in made.secrets if secret in text)
        return teardown(fleets, fleet)

    monkeypatch.setattr(Fleets, "teardown", look_first)
    yield made
    assert home.traces() == []
    assert leaks == []
    assert not [secret for secret in made.secrets if secret in caplog.text]


@pytest.fixture
def beside(kit: ClientKit) -> Iterator[Beside]:
    made = Beside(kit.home.gateways)
    yield made
    made.end()


@pytest.fixture
def held(
    kit: ClientKit,
    s3_server: versitygw.Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[HeldStore]:
    """A bucket that takes half of `held_job` and holds the rest."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_access_key)
    bucket = request.node.name.replace("_", "-")[-50:].strip("-")
    with held_store(s3_server, bucket, write_objects(tmp_path / "source")) as made:
        yield made


@pytest.fixture
def held_job(kit: ClientKit, held: HeldStore) -> TransferJob:
    """Copies `OBJECTS` from a folder."""
    return TransferJob(
        Location(f"file://{held.source}/", kit.SOURCE),
        Location(held.url, kit.SINK, held.proxy.url),
        limits=Limits(chunk_mib=5),
    )


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[images.Image]:
    """The gateway's image, for tests with the marker `image`."""
    with images.built_or_skip(tmp_path_factory.mktemp("image") / "storage") as made:
        yield made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "machines", GATEWAY) as made:
        yield made


@pytest.fixture
def ec2(kit: ClientKit, world: World) -> Iterator[StrictEc2]:
    with open_ec2(world, deployments=("live", "tests")) as made:
        made.conditions.opt_in[kit.SOURCE.partition(":")[2]] = "opt-in-not-required"
        yield made


@pytest.fixture
def clouds_file(ec2: StrictEc2, tmp_path: Path) -> Path:
    path = tmp_path / "clouds.yaml"
    path.write_text(json.dumps(settings_here(aws={"endpoint_url": ec2.url})))
    return path


@pytest.fixture
def slow(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    gate: http_proxy.FaultProxy,
    request: pytest.FixtureRequest,
) -> TransferJob:
    """Small objects, and large ones whose second parts wait at the gate."""
    bucket = re.sub(r"[^a-z0-9]+", "-", request.node.name)[-50:].strip("-")
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
