"""`make live` works on fake clouds, so that it is right when somebody runs it on real ones."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from tests.e2e.held_store import wait_for

from strict_clouds.ec2 import StrictEc2
from strict_clouds.world import World

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from tests.e2e.conftest import S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

REGIONS = ("ap-southeast-2", "eu-west-3")
SECRET = "QUtJQS1zZWNyZXQtb2YtdGVzdHM"


@dataclass(frozen=True)
class Account:
    """Two buckets and an account of fake clouds."""

    buckets: tuple[str, str]
    s3: S3Client
    ec2: StrictEc2
    world: World
    environment: dict[str, str]

    @contextmanager
    def running(self, **more: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.live"],
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            yield process

    def assert_nothing_left(self) -> None:
        assert self.ec2.leftovers() == {}
        assert not any(machine.is_running for machine in self.world.machines)
        for bucket in self.buckets:
            assert self.s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
            assert "Uploads" not in self.s3.list_multipart_uploads(Bucket=bucket)


@pytest.fixture
def account(
    servers: tuple[S3Server, S3Server],
    clouds_file: Path,
    ec2: StrictEc2,
    world: World,
    tmp_path: Path,
) -> Account:
    endpoint = servers[0].endpoint
    s3 = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    name = secrets.token_hex(6)
    buckets = f"source-{name}", f"destination-{name}"
    for bucket, region in zip(buckets, REGIONS, strict=True):
        s3.create_bucket(
            Bucket=bucket,
            CreateBucketConfiguration={"LocationConstraint": region},  # type: ignore[typeddict-item]
        )
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL_S3": endpoint,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "SKYPLANE_LIVE_CLOUDS": str(clouds_file),
        "SKYPLANE_LIVE_AWS": " ".join(f"s3://{bucket}/tests/" for bucket in buckets),
    }
    return Account(buckets, s3, ec2, world, environment)


def report_of(account: Account, process: subprocess.Popen[str]) -> dict[str, Any]:
    """The report, which names nothing of the account."""
    text, _ = process.communicate()
    for name in (*account.buckets, SECRET, "127.0.0.1"):
        assert name not in text
    report: dict[str, Any] = json.loads(text)
    return report


def test_a_run_passes_and_leaves_nothing(account: Account) -> None:
    with account.running() as process:
        report = report_of(account, process)
    assert process.returncode == 0, report
    assert (report["aws"]["passed"], report["aws"]["clean"]) == (True, True)
    assert report["aws"]["cost"]["total_usd"] < report["most_usd"]
    assert (report["gcp"], report["azure"]) == ("not tested", "not tested")
    assert len(account.world.machines) >= 2
    account.assert_nothing_left()


def test_a_plan_above_the_cap_launches_nothing(account: Account) -> None:
    with account.running(SKYPLANE_LIVE_MAX_USD="0.0001") as process:
        report = report_of(account, process)
    assert process.returncode == 1
    assert (report["aws"]["passed"], report["aws"]["clean"]) == (False, True)
    assert "0.0001" in report["aws"]["error"]["message"]
    assert not account.world.machines
    account.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_nothing(account: Account, number: signal.Signals) -> None:
    with account.running() as process:
        wait_for(lambda: account.world.machines, "an instance")
        process.send_signal(number)
        report = report_of(account, process)
    assert process.returncode == 1
    assert (report["aws"]["stopped"], report["aws"]["clean"]) == (True, True)
    account.assert_nothing_left()
