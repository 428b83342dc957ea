"""What `bench.link` compares gateways with: iperf3, and a prototype that is not of this project."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.ports import free_port

from bench.places import cpu_s_of
from bench.wan.network import Unavailable

CONNECTIONS: Final = 16
#: The environment variable that names the prototype's program.
BOUND: Final = "SKYPLANE_LINK_BOUND"


def iperf3_rate(seconds: float) -> float:
    """GB/s of iperf3 over as many connections."""
    binary = shutil.which("iperf3")
    if binary is None:
        raise Unavailable("iperf3 is not installed")
    with _listening(lambda port: [binary, "-s", "-1", "-p", port]) as (_, port):
        words = ["-p", port, "-P", str(CONNECTIONS), "-t", str(seconds), "-l", "1M", "-J"]
        command = [binary, "-c", "127.0.0.1", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9


class Prototype:
    """The program of `--bound`: its source prints what it took, the others are measured here.

    Each copies twice: a gateway has memory from its earlier transfers, too. Both write new files,
    because to write over old ones takes a fifth less time.
    """

    def __init__(self, program: str | None, object_bytes: int) -> None:
        if program is None or not Path(program).is_file():
            raise Unavailable(f"no prototype at {program}; name it by --bound or {BOUND}")
        self._start = [sys.executable, program]
        self._environment = {**os.environ, "SIZE": str(object_bytes)}
        self._object_bytes = object_bytes

    def copy(self, folder: Path, mode: str) -> float:
        """CPU s/GB of both ends together, for the files of a folder."""
        with self._sink(folder, mode) as (sink, port):
            source, used = self._sent(port, folder, mode, sink)
        return source + used

    def relay(self, folder: Path, objects: int) -> float:
        """CPU s/GB of a relay of whole frames, between ends that neither read nor write."""
        source = folder / "none"
        source.mkdir()
        for number in range(objects):
            (source / f"{number:04}").touch()
            os.truncate(source / f"{number:04}", self._object_bytes)
        with (
            self._sink(source, "crc+nullsink") as (_, end),
            self._listening("relay", end, "frame") as (relay, port),
        ):
            _, used = self._sent(port, source, "crc+nullsrc", relay)
        shutil.rmtree(source)
        return used

    @contextmanager
    def _sink(self, folder: Path, mode: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        target = _target(folder)
        target.mkdir()
        with self._listening("sink", str(target), mode) as found:
            yield found
        shutil.rmtree(target)

    def _listening(
        self, role: str, *words: str
    ) -> AbstractContextManager[tuple[subprocess.Popen[bytes], str]]:
        return _listening(lambda port: [*self._start, role, port, *words], self._environment)

    def _sent(
        self, port: str, folder: Path, mode: str, other: subprocess.Popen[bytes]
    ) -> tuple[float, float]:
        """CPU s/GB of the source, and of another of its processes."""
        command = [*self._start, "source", port, str(folder), str(CONNECTIONS), mode]
        for _ in range(2):
            for written in _target(folder).iterdir():
                written.unlink()
            before = cpu_s_of(other.pid)
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=self._environment
            )
            used = cpu_s_of(other.pid) - before
        size_bytes = sum(path.stat().st_size for path in folder.iterdir())
        return float(json.loads(done.stdout)["cpu_src"]), used / (size_bytes / 1e9)


def _target(folder: Path) -> Path:
    return folder.parent / "bound"


@contextmanager
def _listening(
    command: Callable[[str], Sequence[str]], environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A program that listens, and its port.

    No connection asks whether it listens, because that would be the only one it takes.
    """
    port = free_port()
    words = command(str(port))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)
    try:
        while not any(f":{port:04X} " in row and " 0A " in row for row in _tcp_rows()):
            if process.poll() is not None:
                raise subprocess.CalledProcessError(process.returncode, words)
            time.sleep(0.01)
        yield process, str(port)
    finally:
        process.kill()
        process.wait()


def _tcp_rows() -> list[str]:
    tables = (Path("/proc/net") / name for name in ("tcp", "tcp6"))
    return [row for table in tables if table.is_file() for row in table.read_text().splitlines()]
