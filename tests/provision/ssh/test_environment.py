"""The environment of gateways on a machine with a bare Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from skyplane_orchestration.provision.ssh.environment import EnvironmentMaker
from skyplane_orchestration.provision.ssh.package import gateway_requirements


def made(path: Path, requirements: str) -> str:
    maker = EnvironmentMaker()
    while (reason := maker.make_environment(path, requirements)) is None:
        pass
    return reason


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
    names = {line.partition("==")[0] for line in gateway_requirements().splitlines()}
    assert {"aiohttp", "awscrt", "boto3", "google-cloud-storage", "azure-storage-blob"} <= names
