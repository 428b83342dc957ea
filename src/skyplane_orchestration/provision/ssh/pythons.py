"""Which Python runs the gateways of a host: its own, or an environment that is made there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import ConfigurationInvalid, ProvisionFailed
from skyplane_orchestration.provision.local.run_directory import DirectoryBusy, RunRoot
from skyplane_orchestration.provision.ssh.checks import cannot_make_environment, missing_modules
from skyplane_orchestration.provision.ssh.logins import OpenHost
from skyplane_orchestration.provision.ssh.machine import WORK_TIMEOUT_S
from skyplane_orchestration.provision.ssh.package import gateway_requirements

#: The environment is whole once it has this file.
_COMPLETE: Final = "complete"


def python_of_gateways(entry: OpenHost, clock: Clock) -> str:
    """A Python on the host that has the gateway's requirements.

    A host that names no Python gets an environment with them, where its `python3` lacks some.

    Raises ConfigurationInvalid if the named one lacks requirements or cannot make environments, and
    ProvisionFailed if the environment cannot be made.
    """
    missing = missing_modules(entry)
    if not missing:
        return entry.host.interpreter
    if entry.host.python:
        raise ConfigurationInvalid(missing)
    if reason := cannot_make_environment(entry):
        raise ConfigurationInvalid(reason)
    path = _environment_path(entry)
    try:
        make_environment(entry, path, gateway_requirements(), clock)
    except (DirectoryBusy, OSError, ProvisionFailed) as error:
        raise ProvisionFailed(
            f"host {entry.host.name} cannot make the environment of gateways in {path}: {error};"
            " let it reach a package index, or name a python that has the gateway's requirements"
        ) from error
    return str(path / "bin" / "python")


def make_environment(entry: OpenHost, path: Path, requirements: str, clock: Clock) -> None:
    """Make a virtual environment with these requirements in a directory, unless it is there.

    Raises ProvisionFailed, DirectoryBusy and OSError.
    """
    machine, python = entry.machine, str(path / "bin" / "python")
    required = path / "requirements.txt"
    # Wheels only: nothing of a package runs at its installation, and no compiler is needed.
    wheels = ("--no-input", "--no-cache-dir", "--no-deps", "--only-binary", ":all:")
    quiet = "--disable-pip-version-check"

    def run(*command: str) -> None:
        ended = machine.run(*command, timeout_s=WORK_TIMEOUT_S)
        if ended.status != 0:
            raise ProvisionFailed(ended.said)

    # Another orchestrator may make the same one.
    with RunRoot(path.parent, machine).locked(timeout_s=WORK_TIMEOUT_S, clock=clock):
        if machine.exists(path / _COMPLETE):
            return
        run(entry.host.interpreter, "-m", "venv", "--clear", str(path))
        machine.write(required, requirements)
        run(
            *(python, "-m", "pip", quiet, "install"),
            *(*wheels, "--require-hashes", "-r", str(required)),
        )
        machine.write(path / _COMPLETE, "")


def _environment_path(entry: OpenHost) -> Path:
    """Beside the directory for fleets; another version of requirements or Python has another."""
    version = ".".join(entry.machine.python_version().split(".")[:2])
    digest = hashlib.sha256(gateway_requirements().encode()).hexdigest()[:16]
    root = entry.root.path
    return root.with_name(f"{root.name}-python") / f"{digest}-{version}"
