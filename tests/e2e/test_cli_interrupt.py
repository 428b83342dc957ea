"""What becomes of a copy whose process is interrupted or killed."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.e2e.held_store import refuse, take

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, S3Server
    from tests.faults.http_proxy import FaultProxy

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@dataclass(frozen=True)
class Copy:
    """Objects of a source bucket that go to a bucket of the same name through a gate."""

    home: Home
    bucket: str
    destination: S3Server
    gate: FaultProxy
    arguments: tuple[str, ...]

    @contextmanager
    def started(self, *more: str) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "skyplane_orchestration.cli", *self.arguments, *more],
            env=self.home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def wait_for_open_uploads(self) -> None:
        self.home.wait_until(lambda: self.destination.open_uploads(self.bucket), "open uploads")

    def wait_for_the_end_of_all_gateways(self) -> None:
        self.home.wait_until(lambda: not self.home.gateways(), "the end of the gateways")


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return {"large": os.urandom(12 * MIB), "small": os.urandom(100)}


@pytest.fixture
def copy(
    home: Home,
    servers: tuple[S3Server, S3Server],
    gate: FaultProxy,
    objects: dict[str, bytes],
    request: pytest.FixtureRequest,
) -> Copy:
    source, destination = servers
    bucket = "b-" + hashlib.sha256(request.node.name.encode()).hexdigest()[:16]
    source.make_bucket(bucket)
    destination.make_bucket(bucket)
    source.fill(bucket, "data/", objects)
    ends = (
        "--src-endpoint", source.endpoint, "--dst-endpoint", gate.url,
        "--instance-limit", "1", "--min-throughput-gbps", "1", "--chunk-mib", "5",
    )  # fmt: skip
    places = (f"s3://{bucket}/data/", f"s3://{bucket}/copy/")
    return Copy(home, bucket, destination, gate, ("cp", "-r", *places, *ends))


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """Read the progress up to the line with this word."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if word in line:
            return seen
    raise AssertionError(f"ended before {word!r}: {seen}")


@pytest.mark.parametrize("gateways", ["always", "never"])
def test_an_interrupted_copy_takes_its_fleet_down(copy: Copy, gateways: str) -> None:
    with copy.started("--json", "--gateways", gateways) as process:
        read_until(process, "running:")
        copy.wait_for_open_uploads()
        refuse(copy.gate)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    document = json.loads(output)
    assert document["error"]["code"] == "interrupted"
    assert document["result"]["state"] == "cancelled"
    assert errors.splitlines()[-1] == "skyplane-orch: interrupted"
    assert "Traceback" not in errors
    assert copy.home.traces() == []
    assert copy.destination.open_uploads(copy.bucket) == []


def test_a_transfer_goes_on_without_its_client_and_then_ends_its_fleet(
    copy: Copy, objects: dict[str, bytes]
) -> None:
    with copy.started("--lease-s", "2", "--gateways", "always") as process:
        read_until(process, "running:")
        copy.wait_for_open_uploads()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert copy.home.gateways() != []
        take(copy.gate)
        copy.wait_for_the_end_of_all_gateways()
    found = copy.destination.digests(copy.bucket, "copy/")
    # Nobody has heard of the success: the next run of it will be told by the journal.
    (journal,) = (key for key in found if key.startswith(".skyplane/jobs/"))
    wanted = {key: hashlib.sha256(body).hexdigest() for key, body in objects.items()}
    assert found == {**wanted, journal: found[journal]}
    assert copy.destination.open_uploads(copy.bucket) == []
    assert copy.home.traces() == []


def test_a_killed_copy_without_gateways_is_swept_and_its_next_run_ends_it(
    copy: Copy, objects: dict[str, bytes]
) -> None:
    with copy.started("--gateways", "never", "--run", "nightly") as process:
        read_until(process, "running:")
        copy.wait_for_open_uploads()
        process.send_signal(signal.SIGKILL)
        process.wait()
    take(copy.gate)
    assert copy.home.gateways() == []
    with copy.started("--gateways", "never", "--run", "nightly", "--json") as process:
        output, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert json.loads(output)["copied"] == len(objects)
    wanted = {key: hashlib.sha256(body).hexdigest() for key, body in objects.items()}
    assert copy.destination.digests(copy.bucket, "copy/") == wanted
    assert copy.destination.open_uploads(copy.bucket) == []
    assert copy.home.traces() == []
