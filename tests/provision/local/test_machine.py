"""Files and processes of this machine, and how processes are ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.provision.local import machine
from skyplane_orchestration.provision.local.machine import (
    GatewayProcess,
    scan,
    usable_processors,
)
from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.teardown import Runner

RunIdle = Callable[..., "subprocess.Popen[bytes]"]

#: A program that every user may run.
IDLE = ("/bin/sh", "-c", "read line", "idle")


@pytest.fixture
def run_idle() -> Iterator[RunIdle]:
    """Starts processes that wait, with the given words behind their program."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, user: int | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*IDLE, *words], stdin=subprocess.PIPE, user=user)
        started.append(process)
        # Its command line is there a moment after it has been started.
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            pass
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_only_a_command_line_with_both_words_counts(tmp_path: Path, run_idle: RunIdle) -> None:
    config = str(tmp_path / "ab" / "aws:x%2F0" / "config.json")
    ours = run_idle("--config", config, "--fleet", "ab", "--detach")
    run_idle("--config", config, "--fleet", "ac")
    run_idle("--config", str(tmp_path / "other" / "n" / "config.json"), "--fleet", "ab")
    run_idle("--config", config)
    run_idle("--fleet", "ab", "--config")
    run_idle(config, "ab")
    found = scan(tmp_path / "ab")
    assert [(p.pid, p.directory.name) for p in found] == [(ours.pid, "aws:x%2F0")]


@pytest.mark.parametrize("place", ["ab", ""])
def test_only_processes_of_the_owner_of_the_fleets_directory_count(
    place: str, tmp_path: Path, run_idle: RunIdle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can name a fleet in a command line; teardown would wait for that process."""
    stranger = run_idle("--config", str(tmp_path / "ab" / "n" / "config.json"), "--fleet", "ab")
    (tmp_path / place).mkdir(exist_ok=True)
    assert [p.pid for p in scan(tmp_path / "ab")] == [stranger.pid]
    own = Path.stat

    def stat(path: Path, **more: Any) -> os.stat_result:
        values = list(own(path, **more))
        values[4] += path.is_relative_to(tmp_path)  # The user id.
        return os.stat_result(values)

    monkeypatch.setattr(Path, "stat", stat)
    assert scan(tmp_path / "ab") == ()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="starts a process of another user")
def test_another_users_process_is_not_counted(tmp_path: Path, run_idle: RunIdle) -> None:
    words = ("--config", str(tmp_path / "ab" / "n" / "config.json"), "--fleet", "ab")
    ours = run_idle(*words)
    run_idle(*words, user=65534)
    assert [process.pid for process in scan(tmp_path / "ab")] == [ours.pid]


def test_zombies_do_not_count(tmp_path: Path, run_idle: RunIdle) -> None:
    ours = run_idle("--config", str(tmp_path / "ab" / "n" / "config.json"), "--fleet", "ab")
    assert len(scan(tmp_path / "ab")) == 1
    runner = Runner(ControlClient, Clock(), LocalOptions())
    assert runner.stop(lambda: scan(tmp_path / "ab")) == ""
    assert ours.wait() == -15  # Until now it was a zombie.


def test_a_reused_process_id_is_not_signalled(tmp_path: Path, run_idle: RunIdle) -> None:
    other = run_idle("--something", "else")
    stale = GatewayProcess(other.pid, tmp_path / "ab" / "n", os.geteuid())
    ticks = iter(range(100))
    clock = Clock(monotonic=lambda: float(next(ticks)), sleep=lambda _: None)
    left = Runner(ControlClient, clock, LocalOptions(term_grace_s=5.0)).stop(lambda: [stale])
    assert left == f"n (pid {other.pid})"
    assert other.poll() is None


@pytest.mark.parametrize(
    ("quota", "found"),
    [
        (None, 64),
        ("max 100000", 64),
        ("200000 100000", 2),
        ("150000 100000", 1),
        ("50000 100000", 1),
        ("9900000 100000", 64),
    ],
)
def test_a_container_has_the_processors_of_its_quota(
    quota: str | None, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota + "\n")
    assert usable_processors(tmp_path / "cpu.max") == found


def test_the_host_is_named_with_its_boot() -> None:
    name, _, boot = machine.host_identity().rpartition("/")
    assert name
    assert len(boot) == 36
    assert machine.host_identity() == f"{name}/{boot}"
