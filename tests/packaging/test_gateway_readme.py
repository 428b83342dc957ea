"""The gateway's page: its two scripts run, and compose starts what they made."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

KEY = "5eed" * 8
READY_WITHIN_S = 60.0


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "FLEET_DIR": str(tmp_path / "fleet"),
        "FLEET_KEY": KEY,
    }


def script(repository: Path, name: str) -> str:
    """The Python block that follows the comment `<!-- test: name -->`."""
    page = (repository / "gateway" / "README.md").read_text()
    (text,) = re.findall(rf"<!-- test: {name} -->\n```python\n(.*?)^```$", page, re.S | re.M)
    return str(text)


def run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def services(repository: Path) -> dict[str, Any]:
    document = yaml.safe_load((repository / "gateway" / "compose.yaml").read_text())
    services: dict[str, Any] = document["services"]
    return services


@pytest.fixture
def gateways(
    repository: Path, services: dict[str, Any], environment: dict[str, str]
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """What compose would start, as plain processes."""
    run(script(repository, "fleet"), environment)
    started = {}
    for node, service in services.items():
        arguments = [Template(word).substitute(environment) for word in service["command"]]
        command = [sys.executable, "-m", "skyplane_gateway", *arguments]
        started[node] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    yield started
    for process in started.values():
        process.kill()
        process.communicate()


def wait_until_ready(process: subprocess.Popen[bytes], ready: Path) -> None:
    end = time.monotonic() + READY_WITHIN_S
    while not ready.exists():
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < end, f"{ready} was not written"
        time.sleep(0.02)


@pytest.mark.e2e
def test_two_gateways_by_hand(
    repository: Path,
    gateways: dict[str, subprocess.Popen[bytes]],
    environment: dict[str, str],
) -> None:
    fleet = Path(environment["FLEET_DIR"])
    for node, process in gateways.items():
        wait_until_ready(process, fleet / node / "ready.json")
    states = run(script(repository, "status"), environment).splitlines()
    assert [ast.literal_eval(state)["node"] for state in states] == list(gateways)
    for process in gateways.values():
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert all((fleet / node).exists() for node in gateways), "the page says that they stay"


def test_containers_see_their_own_directory_only(services: dict[str, Any]) -> None:
    for node, service in services.items():
        assert service["volumes"] == [f"${{FLEET_DIR}}/{node}:${{FLEET_DIR}}/{node}"]
        assert service["command"][1].startswith(f"${{FLEET_DIR}}/{node}/")
