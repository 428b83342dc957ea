"""Which Python runs the gateways of a host: its own, or an environment that is made there."""

from __future__ import annotations

import hashlib
from pathlib import Path

from skyplane_orchestration.errors import ConfigurationInvalid, ProvisionFailed
from skyplane_orchestration.provision.ssh.checks import cannot_make_environment, missing_modules
from skyplane_orchestration.provision.ssh.logins import OpenHost
from skyplane_orchestration.provision.ssh.package import gateway_requirements


def python_of_gateways(entry: OpenHost) -> str:
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
    path = environment_path(entry)
    if reason := entry.machine.make_environment(path, gateway_requirements()):
        raise ProvisionFailed(
            f"host {entry.host.name} cannot make the environment of gateways in {path}: {reason};"
            " let it reach a package index, or name a python that has the gateway's requirements"
        )
    return str(path / "bin" / "python")


def environment_path(entry: OpenHost) -> Path:
    """Beside the directory for fleets; another version of requirements or Python has another."""
    version = ".".join(entry.machine.python_version().split(".")[:2])
    digest = hashlib.sha256(gateway_requirements().encode()).hexdigest()[:16]
    root = entry.root.path
    return root.with_name(f"{root.name}-python") / f"{digest}-{version}"
