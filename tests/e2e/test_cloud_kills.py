"""A worker that is killed or interrupted at seeded moments leaves nothing in a strict EC2.

Catalogue of faults, 35. A moment is a call of the cloud's API, so it is the same on each machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.clouds.ec2 import StrictEc2
from tests.clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = pytest.mark.e2e

SEED: Final = 161803398
#: Calls of EC2 that a copy makes here, about.
CALLS: Final = 60
MOMENTS: Final = tuple(sorted(random.Random(SEED).sample(range(1, CALLS), 10)))
OFTEN: Final = MOMENTS[4:6]


def moments() -> list[object]:
    """Two in each run of the tests; all of them in the soak."""
    return [
        pytest.param(moment, marks=() if moment in OFTEN else pytest.mark.soak)
        for moment in MOMENTS
    ]


class Copies:
    """Copies between two regions, each a command of its own."""

    def __init__(
        self, kit: ClientKit, ec2: StrictEc2, clouds_file: Path, servers: tuple[S3Server, S3Server]
    ) -> None:
        self.kit, self.ec2 = kit, ec2
        self.choice = ["--provisioner", "cloud", "--clouds", str(clouds_file)]
        self.choice += ["--deployment", "tests"]
        self.ends = []
        for side, server in zip(("src", "dst"), servers, strict=True):
            self.ends += [f"--{side}-region", server.region, f"--{side}-endpoint", server.endpoint]

    def start(self, bucket: str) -> subprocess.Popen[str]:
        urls = [f"s3://{bucket}/p/", f"s3://{bucket}/q/"]
        options = ["-r", "--gateways", "always", "--json"]
        return self._command("cp", *urls, *options, *self.ends)

    def sweep(self) -> None:
        with self._command("sweep", "--older-than-s", "0", "--json") as command:
            output, errors = command.communicate(timeout=120)
        assert command.returncode == 0, output + errors

    def _command(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "skyplane_orchestration.cli", *words, *self.choice],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.kit.home.environment,
        )


@pytest.fixture
def copies(
    kit: ClientKit, ec2: StrictEc2, clouds_file: Path, servers: tuple[S3Server, S3Server]
) -> Copies:
    return Copies(kit, ec2, clouds_file, servers)


@pytest.mark.parametrize("moment", moments())
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_nothing_is_left(
    copies: Copies,
    servers: tuple[S3Server, S3Server],
    world: World,
    number: signal.Signals,
    moment: int,
) -> None:
    bucket = f"moment-{moment}-{number.name.lower()}"
    for server in servers:
        server.make_bucket(bucket)
    objects = {f"o{n}": os.urandom(1 << 20) for n in range(8)}
    servers[0].fill(bucket, "p/", objects)
    with copies.start(bucket) as command:
        while len(copies.ec2.calls) < moment and command.poll() is None:
            time.sleep(0.002)
        command.send_signal(number)
        output, errors = command.communicate(timeout=120)
    print(f"seed {SEED}, call {moment}: {command.returncode}, {errors[-400:]}")
    if number == signal.SIGKILL:
        copies.sweep()
    else:
        assert command.returncode in (0, 130), errors
        assert "Traceback" not in errors
    assert copies.ec2.leftovers() == {}
    assert not [machine for machine in world.machines if machine.is_running]
    for key, body in objects.items():
        found = servers[1].client().list_objects_v2(Bucket=bucket, Prefix=f"q/{key}")
        assert all(row["Size"] == len(body) for row in found.get("Contents", []))
    if command.returncode == 0:
        assert json.loads(output)["objects"] == len(objects)
