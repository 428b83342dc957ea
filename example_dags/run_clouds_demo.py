"""The demo of several clouds: `python example_dags/run_clouds_demo.py`.

It copies a data set from S3 to Google Cloud Storage and on to Azure Blob Storage, each time over
relays, between emulators on this machine. Then it reads all objects back and compares them. The
exit code is 0 only without a difference.

The emulators are moto, fake-gcs-server (Go builds it once) and Azurite (npm installs it once).
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from example_dags.demo_support.commands import run_command
from example_dags.demo_support.dataset import DataSet, demo_data_set
from example_dags.demo_support.servers import End, s3_server
from tests.faults import azurite, fake_gcs


@dataclass(frozen=True, slots=True)
class Place:
    """A prefix in the store of one cloud."""

    url: str
    region: str
    endpoint_url: str


@dataclass(frozen=True, slots=True)
class Leg:
    """One copy, at a rate that no direct path reaches with one instance."""

    source: Place
    destination: Place
    min_throughput_gbps: float

    @property
    def ends(self) -> tuple[str, ...]:
        return (
            self.source.url,
            self.destination.url,
            "--src-endpoint",
            self.source.endpoint_url,
            "--dst-endpoint",
            self.destination.endpoint_url,
        )

    @property
    def regions(self) -> tuple[str, ...]:
        return ("--src-region", self.source.region, "--dst-region", self.destination.region)


_RATES_GBPS: Final = (4.1, 7.0)


def main() -> int:
    data = demo_data_set()
    with tempfile.TemporaryDirectory(prefix="clouds-demo-") as name:
        directory = Path(name)
        with _places(directory, data) as (places, environment):
            for source, destination, rate_gbps in zip(
                places[:-1], places[1:], _RATES_GBPS, strict=True
            ):
                _copy(environment, Leg(source, destination, rate_gbps))
            last = places[-1]
            back = directory / "back"
            end = ("--src-endpoint", last.endpoint_url, "--src-region", last.region)
            run_command(environment, "cp", "-r", last.url, f"{back}/", *end)
            differences = _differences(data, back)
    for difference in differences:
        print(f"problem: {difference}")
    print(
        f"verified: {len(data.sizes)} objects, {data.size_bytes} bytes,"
        f" {len(differences)} differences"
    )
    return 1 if differences else 0


def _copy(environment: dict[str, str], leg: Leg) -> None:
    """Copy over relays, and compare both ends."""
    rate = ("--instance-limit", "1", "--min-throughput-gbps", str(leg.min_throughput_gbps))
    run_command(environment, "cp", "-r", *leg.ends, *leg.regions, *rate)
    run_command(environment, "verify", "-r", *leg.ends)


@contextmanager
def _places(directory: Path, data: DataSet) -> Iterator[tuple[list[Place], dict[str, str]]]:
    """The three places, the first with the data, and the environment of the commands."""
    for name in ("run", "azure"):
        (directory / name).mkdir(mode=0o700)
    with ExitStack() as stack:
        log = directory / "s3.log"
        s3_url = stack.enter_context(s3_server(log))
        s3 = End("aws:ap-southeast-2", s3_url, "sydney", "events/", log)
        client = s3.client()
        client.create_bucket(
            Bucket=s3.bucket, CreateBucketConfiguration={"LocationConstraint": "ap-southeast-2"}
        )
        data.write(client, s3.bucket, s3.prefix)
        gcs_url = stack.enter_context(fake_gcs.running(directory / "gcs.log"))
        fake_gcs.create_bucket(gcs_url, "frankfurt")
        azure = stack.enter_context(azurite.running(directory / "azure"))
        _create_container(azure, "saopaulo")
        places = [
            Place(s3.url, s3.region, s3.endpoint_url),
            Place("gs://frankfurt/events/", "gcp:europe-west3", gcs_url),
            Place(f"az://{azure.account}/saopaulo/events/", "azure:brazilsouth", azure.url),
        ]
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AZURE_STORAGE_KEY": azure.account_key,
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_RUNTIME_DIR": str(directory / "run"),
        }
        yield places, environment


def _create_container(server: azurite.Server, name: str) -> None:
    from azure.storage.blob import ContainerClient

    key = {"account_name": server.account, "account_key": server.account_key}
    with ContainerClient(f"{server.url}/{server.account}", name, credential=key) as client:
        client.create_container()


def _differences(data: DataSet, folder: Path) -> list[str]:
    """What is missing, unexpected or different in a folder."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    problems = [f"missing: {key}" for key in sorted(set(data.sizes) - set(found))]
    problems += [f"unexpected: {key}" for key in sorted(set(found) - set(data.sizes))]
    for key in sorted(set(found) & set(data.sizes)):
        if hashlib.sha256(found[key].read_bytes()).hexdigest() != data.digest(key):
            problems.append(f"different content: {key}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
