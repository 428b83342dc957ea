"""The demo of gateways on cloud instances: `python example_dags/run_instances_demo.py`.

It copies a data set from S3 to Google Cloud Storage over relays. The gateways run on instances of
fake clouds on this machine: the fakes check what the real ones check, and each instance boots the
user data that its cloud was sent, as real processes. The exit code is 0 only if both ends are equal
and the clouds have nothing left.

The stores are moto and fake-gcs-server (Go builds it once).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from example_dags.demo_support.commands import run_command
from example_dags.demo_support.dataset import demo_data_set
from example_dags.demo_support.servers import End, s3_server
from tests.clouds.ec2 import StrictEc2, strict_ec2
from tests.clouds.gce import PROJECT, StrictGce, strict_gce
from tests.clouds.world import IMAGE, World
from tests.faults import fake_gcs

SOURCE_REGION, TARGET_REGION = "aws:ap-southeast-2", "gcp:europe-west1"
#: No direct path reaches it with one instance.
RATE_GBPS: Final = 3.2


@dataclass(frozen=True, slots=True)
class FakeClouds:
    """The fakes, and the machines of all their instances."""

    world: World
    ec2: StrictEc2
    gce: StrictGce

    def leftovers(self) -> dict[str, list[str]]:
        return {**self.ec2.leftovers(), **self.gce.leftovers()}

    def running(self) -> int:
        return sum(machine.is_running for machine in self.world.machines)


def main() -> int:
    data = demo_data_set()
    with tempfile.TemporaryDirectory(prefix="instances-demo-") as name, ExitStack() as stack:
        directory = Path(name)
        (directory / "run").mkdir(mode=0o700)
        clouds = stack.enter_context(_fake_clouds(directory))
        s3_url = stack.enter_context(s3_server(directory / "s3.log"))
        source = End(SOURCE_REGION, s3_url, "sydney", "events/", directory / "s3.log")
        client = source.client()
        client.create_bucket(
            Bucket=source.bucket, CreateBucketConfiguration={"LocationConstraint": "ap-southeast-2"}
        )
        data.write(client, source.bucket, source.prefix)
        gcs_url = stack.enter_context(fake_gcs.running(directory / "gcs.log"))
        fake_gcs.create_bucket(gcs_url, "belgium")
        ends = [source.url, "gs://belgium/events/"]
        ends += ["--src-endpoint", s3_url, "--dst-endpoint", gcs_url]
        regions = ["--src-region", SOURCE_REGION, "--dst-region", TARGET_REGION]
        rate = ["--instance-limit", "1", "--min-throughput-gbps", str(RATE_GBPS)]
        fleet = ["--provisioner", "cloud", "--clouds", str(_clouds_file(directory, clouds))]
        fleet += ["--deployment", "demo", "--gateways", "always"]
        environment = _environment(directory)
        run_command(environment, "cp", "-r", *ends, *regions, *rate, *fleet)
        run_command(environment, "verify", "-r", *ends)
        left, running = clouds.leftovers(), clouds.running()
        print(
            f"{len(clouds.world.machines)} instances booted from their user data,"
            f" {running} left running, {sum(map(len, left.values()))} other resources left"
        )
        return 1 if left or running else 0


@contextmanager
def _fake_clouds(directory: Path) -> Iterator[FakeClouds]:
    with (
        World(directory / "machines") as world,
        strict_ec2(world) as ec2,
        strict_gce(world) as gce,
    ):
        ec2.conditions.opt_in[SOURCE_REGION.partition(":")[2]] = "opt-in-not-required"
        gce.conditions.now_s = time.time()
        yield FakeClouds(world, ec2, gce)


def _clouds_file(directory: Path, clouds: FakeClouds) -> Path:
    path = directory / "clouds.json"
    document = {
        "image": IMAGE.image,
        "control_cidrs": ["127.0.0.1/32"],
        "poll_s": 0.5,
        "aws": {"endpoint_url": clouds.ec2.url},
        "gcp": {"endpoint_url": clouds.gce.url, "project": PROJECT},
    }
    path.write_text(json.dumps(document))
    return path


def _environment(directory: Path) -> dict[str, str]:
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
        "AWS_EC2_METADATA_DISABLED": "true",
        "XDG_CONFIG_HOME": str(directory / "config"),
        "XDG_RUNTIME_DIR": str(directory / "run"),
    }


if __name__ == "__main__":
    sys.exit(main())
