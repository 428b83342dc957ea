"""The environment of gateways on a machine with a bare Python."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_orchestration.errors import ProvisionFailed
from skyplane_orchestration.provision.local.run_directory import RunRoot
from skyplane_orchestration.provision.ssh.agent import Agent
from skyplane_orchestration.provision.ssh.hosts import SshHost
from skyplane_orchestration.provision.ssh.logins import OpenHost
from skyplane_orchestration.provision.ssh.machine import RemoteMachine
from skyplane_orchestration.provision.ssh.package import gateway_requirements
from skyplane_orchestration.provision.ssh.pythons import make_environment


def made(path: Path, requirements: str) -> str:
    """Why the environment cannot be made by an agent without a session; empty if it is made."""
    agent = Agent()

    def call(verb: str, paths: tuple[str, ...], values: tuple[Any, ...], more: Any) -> Any:
        return getattr(agent, verb)(*map(Path, paths), *values, **more)

    machine = RemoteMachine("here", call)
    host = SshHost("127.0.0.1", python=sys.executable)
    entry = OpenHost(host, machine, RunRoot(path.parent, machine))
    try:
        make_environment(entry, path, requirements, SYSTEM_CLOCK)
    except ProvisionFailed as error:
        return str(error)
    return ""


@pytest.mark.long
def test_an_environment_is_made_once_and_after_a_failure_again(tmp_path: Path) -> None:
    path = tmp_path / "environment"
    assert "nothing-of-this-name" in made(path, "--no-index\nnothing-of-this-name==1\n")
    assert made(path, "--no-index\n") == ""
    (path / "own").touch()
    assert made(path, "--no-index\n") == ""
    assert (path / "own").exists()
    version = [str(path / "bin" / "python"), "-m", "pip", "--version"]
    assert str(path) in subprocess.run(version, check=True, capture_output=True, text=True).stdout


def test_requirements_come_with_the_package() -> None:
    lines = gateway_requirements().splitlines()
    names = {line.partition("==")[0] for line in lines if not line.startswith(" ")}
    assert {"aiohttp", "awscrt", "boto3", "google-cloud-storage", "azure-storage-blob"} <= names


@pytest.mark.long
def test_the_requirements_are_installed_by_their_hashes(tmp_path: Path) -> None:
    """Needs a package index; the gateway's are some 60 MB."""
    said = made(tmp_path / "gateway", gateway_requirements())
    if re.search("No matching distribution|Connection", said):
        pytest.skip(f"the package index cannot be reached: {said}")
    assert said == ""
    python = str(tmp_path / "gateway" / "bin" / "python")
    modules = "import aiohttp, awscrt, boto3, cryptography, google.cloud.storage"
    subprocess.run([python, "-I", "-c", modules], check=True)
    forged = made(tmp_path / "forged", f"six==1.17.0 --hash=sha256:{'0' * 64}\n")
    assert f"Expected sha256 {'0' * 64}" in forged
    assert not (tmp_path / "forged" / "complete").exists()
    assert "Hashes are required" in made(tmp_path / "bare", "six==1.17.0\n")
