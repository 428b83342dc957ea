"""The test of real clouds passes on fake ones, so that it is right when somebody needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from tests.live import test_copy

from strict_clouds.ec2 import StrictEc2
from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_a_copy(
    servers: tuple[S3Server, S3Server],
    clouds_file: Path,
    ec2: StrictEc2,
    world: World,
    tmp_path: Path,
) -> None:
    server = servers[0]
    ends = {"live-source": "ap-southeast-2", "live-destination": "eu-west-3"}
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    for bucket, region in ends.items():
        client.create_bucket(
            Bucket=bucket,
            CreateBucketConfiguration={"LocationConstraint": region},  # type: ignore[typeddict-item]
        )
    source, destination = (f"s3://{bucket}/tests" for bucket in ends)
    environment = {
        **os.environ,
        **keys,
        "AWS_ENDPOINT_URL_S3": server.endpoint,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "SKYPLANE_LIVE_CLOUDS": str(clouds_file),
        "SKYPLANE_LIVE_SOURCE": source,
        "SKYPLANE_LIVE_DESTINATION": destination,
    }
    command = [sys.executable, "-m", "pytest", "-m", "live", "-q", test_copy.__file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert len(world.machines) >= 2
    assert ec2.leftovers() == {}
    for bucket in ends:
        assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
