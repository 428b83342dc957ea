"""A worker that is killed or interrupted at seeded moments leaves nothing in a strict cloud.

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
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.clouds.world import World
from tests.e2e.cloud_sites import SITES, CloudSite

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SEED: Final = 161803398
#: Calls of the API that a copy makes here, about.
CALLS: Final = {"aws": 80, "azure": 95, "gcp": 65}
SIGNALS: Final = (signal.SIGKILL, signal.SIGINT)


def moments() -> list[object]:
    """Cloud, signal, number of the call: one kill of each cloud, and one Ctrl-C, in each run of the
    tests; all of them in the soak.
    """
    found: list[object] = []
    for cloud, calls in CALLS.items():
        chosen = sorted(random.Random(SEED).sample(range(1, calls), 10))
        for number in SIGNALS:
            for moment in chosen:
                is_often = moment == chosen[4] and (number == signal.SIGKILL or cloud == "aws")
                name = f"{cloud}-{'kill' if number == signal.SIGKILL else 'ctrl-c'}-{moment}"
                marks = () if is_often else pytest.mark.soak
                found.append(pytest.param(cloud, number, moment, id=name, marks=marks))
    return found


class Copies:
    """Copies between two regions, each a command of its own."""

    def __init__(
        self,
        kit: ClientKit,
        site: CloudSite,
        clouds_file: Path,
        servers: tuple[S3Server, S3Server],
    ) -> None:
        self.kit, self.site = kit, site
        site.write_clouds_file(clouds_file)
        self.choice = ["--provisioner", "cloud", "--clouds", str(clouds_file)]
        self.choice += ["--deployment", "tests"]
        self.ends = []
        for side, region, server in zip(("src", "dst"), site.regions, servers, strict=True):
            self.ends += [f"--{side}-region", region, f"--{side}-endpoint", server.endpoint]

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
def site(world: World, request: pytest.FixtureRequest) -> Iterator[CloudSite]:
    with SITES[request.param](world) as made:
        yield made


@pytest.mark.parametrize(("site", "number", "moment"), moments(), indirect=["site"])
def test_nothing_is_left(
    kit: ClientKit,
    site: CloudSite,
    servers: tuple[S3Server, S3Server],
    world: World,
    tmp_path: Path,
    number: signal.Signals,
    moment: int,
) -> None:
    copies = Copies(kit, site, tmp_path / "clouds.yaml", servers)
    cloud = site.regions[0].partition(":")[0]
    bucket = f"{cloud}-{moment}-{number.name.lower()}"
    for server in servers:
        server.make_bucket(bucket)
    objects = {f"o{n}": os.urandom(1 << 20) for n in range(8)}
    servers[0].fill(bucket, "p/", objects)
    with copies.start(bucket) as command:
        while len(site.fake.calls) < moment and command.poll() is None:
            time.sleep(0.002)
        command.send_signal(number)
        output, errors = command.communicate(timeout=120)
    came_to = f"call {moment} of {len(site.fake.calls)}: {command.returncode}"
    print(f"seed {SEED}, {cloud}, {came_to}, {errors[-400:]}")
    if number == signal.SIGKILL:
        copies.sweep()
    else:
        assert command.returncode in (0, 130), errors
        assert "Traceback" not in errors
    assert site.fake.leftovers() == {}
    assert not [machine for machine in world.machines if machine.is_running]
    for key, body in objects.items():
        found = servers[1].client().list_objects_v2(Bucket=bucket, Prefix=f"q/{key}")
        assert all(row["Size"] == len(body) for row in found.get("Contents", []))
    if command.returncode == 0:
        assert json.loads(output)["objects"] == len(objects)
