"""A copy between two buckets of real clouds, through instances of real accounts. See README.md."""

from __future__ import annotations

import filecmp
import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.live, pytest.mark.timeout(3600)]

MIB = 1 << 20
FILES = {"large": 48 * MIB, "folder/medium": 15 * MIB, "empty": 0} | {
    f"s{n}": 4096 for n in range(256)
}


@dataclass(frozen=True)
class Live:
    """The buckets and the fleets of one run."""

    source: str
    destination: str
    fleet: tuple[str, ...]

    def command(self, *words: str) -> dict[str, Any]:
        """The result of a command of this installation. Raises AssertionError if it fails."""
        command = [sys.executable, "-m", "skyplane_orchestration.cli", *words, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, f"{shlex.join(words)}: status {done.returncode}: {done.stdout}"
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture
def live() -> Iterator[Live]:
    run = secrets.token_hex(3)
    source, destination = (
        f"{_given(name).rstrip('/')}/{run}/" for name in ("SOURCE", "DESTINATION")
    )
    deployment = os.environ.get("SKYPLANE_LIVE_DEPLOYMENT", "live")
    choice = ["--provisioner", "cloud", "--clouds", _given("CLOUDS"), "--deployment", deployment]
    made = Live(source, destination, tuple(choice))
    sweep = ["sweep", "--older-than-s", "0", *choice]
    print(f"after a kill: skyplane-orch {shlex.join(sweep)}")
    try:
        yield made
    finally:
        made.command(*sweep)


def _given(name: str) -> str:
    value = os.environ.get(f"SKYPLANE_LIVE_{name}", "")
    if not value:
        pytest.fail(f"SKYPLANE_LIVE_{name} is not set; see tests/live/README.md")
    return value


def test_a_copy_through_instances_is_equal_and_leaves_nothing(live: Live, tmp_path: Path) -> None:
    original = tmp_path / "original"
    for name, size in FILES.items():
        path = original / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    live.command("doctor", *live.fleet)
    live.command("cp", "-r", str(original), live.source)
    most_usd = os.environ.get("SKYPLANE_LIVE_MAX_USD", "0.50")
    options = shlex.split(os.environ.get("SKYPLANE_LIVE_OPTIONS", ""))
    options += ["--gateways", "always", "--max-job-usd", most_usd, *live.fleet]
    report = live.command("cp", "-r", live.source, live.destination, *options)
    assert (report["copied"], report["encrypted"]) == (len(FILES), True)
    assert live.command("sweep", "--dry-run", *live.fleet)["orphans"] == []
    for end in (live.destination, live.source):
        back = tmp_path / end.partition(":")[0]
        live.command("cp", "-r", "--move", end, str(back))
        _, different, missing = filecmp.cmpfiles(original, back, FILES, shallow=False)
        assert (different, missing) == ([], [])
