"""Two S3 servers on this machine that stand for two regions, with a bucket each."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

SOURCE_REGION: Final = "aws:ap-southeast-2"
DESTINATION_REGION: Final = "aws:eu-west-3"

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class End:
    """A bucket in one region, with a prefix in it.

    Args:
        region: region tag.
        endpoint_url: address of the server that stands for the region's S3.
        log_path: the server's log of requests.
    """

    region: str
    endpoint_url: str
    bucket: str
    prefix: str
    log_path: Path

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def client(self) -> S3Client:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=self.region.partition(":")[2],
            aws_access_key_id="demo",
            aws_secret_access_key="demo",
        )


@dataclass(frozen=True, slots=True)
class DemoSite:
    """The two ends of a demo, and its directory.

    Args:
        directory: for the orchestrator's home, logs and state; removed by its maker.
    """

    directory: Path
    source: End
    destination: End

    @property
    def run_root(self) -> Path:
        """The local provisioner's directory of fleets under `environment`."""
        return self.directory / "run" / "skyplane-orch"

    @property
    def log_path(self) -> Path:
        """The file with all output of the orchestrator."""
        return self.directory / "orchestrator.log"

    def environment(self) -> dict[str, str]:
        """The environment of the orchestrator's process, with the variables of the example.

        The fleet secret and the local fleets are in the site's directory too (XDG base directory
        specification).
        """
        return {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
            "AWS_EC2_METADATA_DISABLED": "true",
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_RUNTIME_DIR": str(self.directory / "run"),
            "SKYPLANE_DEMO_SOURCE_URL": self.source.url,
            "SKYPLANE_DEMO_SOURCE_ENDPOINT": self.source.endpoint_url,
            "SKYPLANE_DEMO_DESTINATION_URL": self.destination.url,
            "SKYPLANE_DEMO_DESTINATION_ENDPOINT": self.destination.endpoint_url,
        }


@contextmanager
def demo_site(directory: Path) -> Iterator[DemoSite]:
    """Two servers with a bucket each, until the block ends."""
    (directory / "run").mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "config").mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as stack:
        logs = directory / "s3-source.log", directory / "s3-destination.log"
        servers = [stack.enter_context(s3_server(log_path)) for log_path in logs]
        site = DemoSite(
            directory,
            End(SOURCE_REGION, servers[0], "demo-sydney", "imagenet/", logs[0]),
            End(DESTINATION_REGION, servers[1], "demo-paris", "copy/of/imagenet/", logs[1]),
        )
        for end in (site.source, site.destination):
            end.client().create_bucket(
                Bucket=end.bucket,
                CreateBucketConfiguration={
                    "LocationConstraint": end.region.partition(":")[2]  # type: ignore[typeddict-item]
                },
            )
        yield site


@contextmanager
def s3_server(log_path: Path) -> Iterator[str]:
    """A moto server in another process; its address.

    Raises RuntimeError with the end of its log if it does not come up.
    """
    port = _free_port()
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C must not end it before the orchestrator.
        )
    try:
        if not _answers(process, port):
            raise RuntimeError(f"moto did not come up: {log_path.read_text()[-2000:]}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(_POLL_S)
        else:
            return True
    return False
