"""Two places of one kind of store on this machine, and commands that copy between them.

S3 is versitygw with its files in memory, twice. Google Cloud Storage is fake-gcs-server, Azure
Blob Storage is Azurite; both keep objects in memory, and one server has both places.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

import boto3
from azure.storage.blob import ContainerClient
from tests.faults import azurite, fake_gcs, toxiproxy, versitygw

STORES: Final = ("s3", "gcs", "azure")
SOURCE, TARGET = "source", "target"
Unavailable = (versitygw.Unavailable, fake_gcs.Unavailable, azurite.Unavailable)

#: Of source and target.
ONE_REGION: Final = ("us-east-1", "us-east-1")
#: Of rclone's `sync`, which would delete our manifest.
NOT_OURS: Final = ("--exclude", "/.skyplane/**")
#: From the URL of a server to the one that commands use.
Through = Callable[[str], str]

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
#: Where a store does not name its region.
_REGIONS: Final = {"gcs": "gcp:us-east1", "azure": "azure:eastus"}


@dataclass(frozen=True, slots=True)
class Places:
    """Two places, and the environment of commands that use them.

    Attributes:
        urls, endpoints: of source and target, as `skyplane-orch` takes them.
        folder: in memory; holds the files of servers, and the homes of the commands.
        options: of each of our commands, with their values.
    """

    store: str
    urls: tuple[str, str]
    endpoints: tuple[str, str]
    folder: Path
    environment: Mapping[str, str]
    options: tuple[tuple[str, str], ...] = ()

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

    def cpu_s(self, command: Sequence[str]) -> float:
        """Run a command; CPU seconds of all its processes. Raises as `seconds`."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds(command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def own(self, verb: str, source: str, target: str, *more: str) -> list[str]:
        """`skyplane-orch cp` or `sync` from one place to the other."""
        command = [sys.executable, "-m", "skyplane_orchestration.cli", verb, "-q"]
        command += [f"{self.urls[0]}/{source}", f"{self.urls[1]}/{target}"]
        command += ["--src-endpoint", self.endpoints[0], "--dst-endpoint", self.endpoints[1]]
        return [*command, *chain.from_iterable(self.options), *more]

    def rclone(self, binary: str, verb: str, source: str, target: str, *more: str) -> list[str]:
        """The same with rclone."""
        ends = [f"near:{SOURCE}/{source}", f"far:{TARGET}/{target}"]
        checks = ["--s3-no-check-bucket"] if self.store == "s3" else []
        return [binary, verb, *ends, *checks, *more]

    def fill(self, end: int, bodies: Iterator[tuple[str, bytes]]) -> None:
        """Write objects to the source (0) or the target (1): pairs of key and body."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            for key, body in bodies:
                file = Path(folder) / key
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(body)
            command = [sys.executable, "-m", "skyplane_orchestration.cli", "cp", "-q", "-r"]
            command += [f"file://{folder}/", f"{self.urls[end]}/"]
            command += ["--dst-endpoint", self.endpoints[end]]
            of_target = (pair for pair in self.options if pair[0].startswith("--dst"))
            self.seconds([*command, *chain.from_iterable(of_target)])

    def remove_copies(self, objects: int) -> None:
        """Remove what a command has written to `copy-*`, at no command's cost.

        S3 only: the bucket is a folder of this machine. Raises AssertionError for another number.
        """
        if self.store != "s3":
            return
        entries = list((self.folder / TARGET / TARGET).glob("copy-*"))
        found = sum(row.is_file() for entry in entries for row in (entry, *entry.rglob("*")))
        if found != objects:
            raise AssertionError(f"{found} objects were written instead of {objects}")
        for entry in entries:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def servers_cpu_s() -> float:
    """CPU seconds of the living child processes so far: the servers, between commands."""
    me = str(os.getpid())
    used = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # It has ended.
        if fields[1] == me:
            used += int(fields[11]) + int(fields[12])
    return used / _TICKS_PER_S


def cpu_s_of(pid: int) -> float:
    """CPU seconds of a process and its threads so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@contextmanager
def open_places(
    store: str, late_ms: int = 0, *, s3_regions: tuple[str, str] = ONE_REGION
) -> Iterator[Places]:
    """Two empty places of a store, until the block ends. Raises `Unavailable`.

    Answers come `late_ms` late.
    """
    memory = Path("/dev/shm")
    with ExitStack() as open_:
        where = memory if memory.is_dir() else None
        temporary = tempfile.TemporaryDirectory(prefix="bench-", dir=where)
        folder = Path(open_.enter_context(temporary))
        through = open_.enter_context(_late_answers(folder / "late.log", late_ms))
        if store == "s3":
            opened = _s3(folder, open_, through, s3_regions)
        else:
            opened = {"gcs": _gcs, "azure": _azure}[store](folder, open_, through)
        yield replace(opened, environment={**_environment(folder), **opened.environment})


@contextmanager
def _late_answers(log_file: Path, late_ms: int) -> Iterator[Through]:
    """From the URL of a server to one at which its answers come late."""
    if not late_ms:
        yield str
        return
    with toxiproxy.running(log_file, late_ms) as through:
        yield through


def _s3(folder: Path, open_: ExitStack, through: Through, regions: tuple[str, str]) -> Places:
    servers = []
    for bucket, region in zip((SOURCE, TARGET), regions, strict=True):
        (folder / bucket).mkdir()
        running = versitygw.running(folder / bucket, "--data-integrity-etag", region=region)
        servers.append(server := open_.enter_context(running))
        client = boto3.client(
            "s3",
            endpoint_url=server.url,
            aws_access_key_id=server.access_key_id,
            aws_secret_access_key=server.secret_access_key,
            region_name=region,
        )
        client.create_bucket(Bucket=bucket)
    near, far = (replace(server, url=through(server.url)) for server in servers)
    keys = {"ACCESS_KEY_ID": near.access_key_id, "SECRET_ACCESS_KEY": near.secret_access_key}
    environment = {"AWS_REGION": "us-east-1", **{f"AWS_{name}": key for name, key in keys.items()}}
    for name, server, region in zip(("NEAR", "FAR"), (near, far), regions, strict=True):
        values = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": server.url, **keys}
        values["REGION"] = region
        environment |= _rclone_remote(name, values)
    urls = (f"s3://{SOURCE}", f"s3://{TARGET}")
    return Places("s3", urls, (near.url, far.url), folder, environment)


def _gcs(folder: Path, open_: ExitStack, through: Through) -> Places:
    url = through(open_.enter_context(fake_gcs.running(folder / "server.log")))
    values = {
        "TYPE": "google cloud storage",
        "ENDPOINT": f"{url}/storage/v1/",
        "ANONYMOUS": "true",
        "BUCKET_POLICY_ONLY": "true",
        "NO_CHECK_BUCKET": "true",
    }
    for bucket in (SOURCE, TARGET):
        fake_gcs.create_bucket(url, bucket)
    environment = _rclone_remote("NEAR", values) | _rclone_remote("FAR", values)
    anonymous = (("--src-option", "anonymous=true"), ("--dst-option", "anonymous=true"))
    urls = (f"gs://{SOURCE}", f"gs://{TARGET}")
    return Places("gcs", urls, (url, url), folder, environment, anonymous + _in_region("gcs"))


def _azure(folder: Path, open_: ExitStack, through: Through) -> Places:
    (folder / "azurite").mkdir()
    server = open_.enter_context(azurite.running(folder / "azurite"))
    url = f"{through(server.url)}/{server.account}"
    connection = f"AccountName={server.account};AccountKey={server.account_key};BlobEndpoint={url};"
    for container in (SOURCE, TARGET):
        with ContainerClient.from_connection_string(connection, container) as client:
            client.create_container()
    values = {
        "TYPE": "azureblob",
        "ACCOUNT": server.account,
        "KEY": server.account_key,
        "ENDPOINT": url,
        "NO_CHECK_CONTAINER": "true",
    }
    environment = _rclone_remote("NEAR", values) | _rclone_remote("FAR", values)
    environment["AZURE_STORAGE_CONNECTION_STRING"] = connection
    urls = (f"az://{server.account}/{SOURCE}", f"az://{server.account}/{TARGET}")
    return Places("azure", urls, (url, url), folder, environment, _in_region("azure"))


def _in_region(store: str) -> tuple[tuple[str, str], ...]:
    return (("--src-region", _REGIONS[store]), ("--dst-region", _REGIONS[store]))


def _rclone_remote(name: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"RCLONE_CONFIG_{name}_{option}": value for option, value in values.items()}


def _environment(folder: Path) -> dict[str, str]:
    """The environment of all commands: separate directories."""
    kept = ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    for name in ("home", "run"):
        (folder / name).mkdir()
    return environment | {"HOME": str(folder / "home"), "XDG_RUNTIME_DIR": str(folder / "run")}
