"""rclone reads the modification times that stores write here, and the other way round."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bench.peers import rclone_binary

from skyplane_gateway.common.mtime import mtime_ns_of, with_mtime
from skyplane_gateway.common.objects import ObjectAttributes

MTIME_NS = 1_600_000_000_123_456_000


def remote_of(harness: Any) -> str:
    """The bucket as a remote of rclone that needs no configuration."""
    spec, secrets = harness.spec, harness.credentials
    if spec.kind == "s3":
        options = {
            "access_key_id": secrets["access_key_id"],
            "secret_access_key": secrets["secret_access_key"],
            "endpoint": spec.endpoint_url,
            "provider": "Other",
        }
        name, bucket = "s3", spec.bucket
    elif spec.kind == "gcs":
        options = {"anonymous": "true", "endpoint": f"{spec.endpoint_url}/storage/v1/"}
        name, bucket = "gcs", spec.bucket
    else:
        account, _, bucket = spec.bucket.partition("/")
        options = {
            "account": account,
            "key": secrets["account_key"],
            "endpoint": f"{spec.endpoint_url}/{account}",
        }
        name = "azureblob"
    written = ",".join(f"{option}='{value}'" for option, value in options.items())
    return f":{name},{written}:{bucket}"


def run(*arguments: str) -> str:
    binary = rclone_binary()
    if binary is None:
        pytest.skip("rclone can neither be found nor built")
    done = subprocess.run(
        [binary, *arguments, "--config", os.devnull, "--s3-no-check-bucket"],
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rclone_and_this_project_read_each_others_times(harness: Any, tmp_path: Path) -> None:
    if harness.spec.kind not in ("s3", "gcs", "azure"):
        return
    ours = with_mtime(ObjectAttributes(), MTIME_NS)
    harness.shared.put("ours/k", b"x", attributes=ours)
    remote = remote_of(harness)
    assert "2020-09-13 12:26:40.123456000 ours/k" in run("lsl", remote)
    file = tmp_path / "k"
    file.write_bytes(b"x")
    os.utime(file, ns=(0, MTIME_NS))
    run("copyto", str(file), f"{remote}/theirs/k")
    assert mtime_ns_of(harness.shared.head("theirs/k").attributes) == MTIME_NS
