"""Podman or Docker of a host, for its account."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.container import CONTAINER_USER
from skyplane_orchestration.provision.ssh.machine import Ended, RemoteMachine

#: The first of them that works is used.
PROGRAMS: Final = ("podman", "docker")
_INFO: Final = ("info", "--format", "{{json .}}")


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that runs containers.

    Args:
        program: `podman` or `docker`.
        version: its own.
        user: user and group of gateways inside a container. Outside they are the account, or
            `CONTAINER_USER` if the account is root.
        namespace: options for that user.
        owner: the user that must own a gateway's files, if it is not the account.
        ends_at_logout: its containers end with the last session of the account.
    """

    program: str
    version: str
    user: str
    namespace: tuple[str, ...] = ()
    owner: int | None = None
    ends_at_logout: bool = False

    @property
    def is_podman(self) -> bool:
        return self.program == PROGRAMS[0]

    def bind(self, directory: str) -> str:
        """The value of `--mount` that shows a directory at its own path."""
        # SELinux lets a container use files with its own label only.
        relabel = ",relabel=private" if self.is_podman else ""
        return f"type=bind,source={directory},destination={directory}{relabel}"


def find_engine(machine: RemoteMachine) -> Engine | None:
    """The engine of a host; None if none is installed.

    Raises ConfigurationInvalid if none works.
    """
    reasons = []
    for program in PROGRAMS:
        if not machine.program_path(program):
            continue
        ended = machine.run(program, *_INFO)
        document = _document(ended)
        # Docker's client may succeed without a daemon.
        refusals = document.get("ServerErrors") or ()
        if document and not refusals:
            return _engine(program, document, machine.account())
        said = "; ".join(map(str, refusals)) or ended.said
        reasons.append(f"{program} does not work there: {said}")
    if reasons:
        raise ConfigurationInvalid(
            f"host {machine.name} cannot run containers: {'; '.join(reasons)}; repair it for this"
            " account, or omit image"
        )
    return None


def usable_engine(machine: RemoteMachine, engine: Engine | None) -> Engine:
    """The found engine, if gateways can run with it. Raises ConfigurationInvalid."""
    if engine is None:
        raise ConfigurationInvalid(
            f"host {machine.name} has neither podman nor docker, and its image needs one; install"
            " podman there, or omit image"
        )
    if engine.ends_at_logout:
        name = machine.account()["name"]
        raise ConfigurationInvalid(
            f"containers of host {machine.name} end when the orchestrator logs out; run `loginctl"
            f" enable-linger {name}` there as root"
        )
    return engine


def _document(ended: Ended) -> dict[str, Any]:
    """What `info` says; empty if it failed."""
    try:
        document = json.loads(ended.output) if ended.status == 0 else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _engine(program: str, document: dict[str, Any], account: dict[str, Any]) -> Engine:
    ids = f"{account['user']}:{account['group']}"
    is_root = account["user"] == 0
    if is_root:
        ids = f"{CONTAINER_USER}:{CONTAINER_USER}"
    owner = CONTAINER_USER if is_root else None
    host = document.get("host")
    if host is None:
        version = str(document.get("ServerVersion", ""))
        if any("name=rootless" in option for option in document.get("SecurityOptions") or ()):
            # Its root is the account, and has no capabilities.
            return Engine(program, version, "0:0")
        return Engine(program, version, ids, ("--userns", "host"), owner)
    version = str(document["version"]["Version"])
    # Proxies are named where a gateway needs them.
    namespace: tuple[str, ...] = ("--http-proxy=false",)
    rootless = bool(host["security"]["rootless"])
    if rootless:
        namespace = (*namespace, "--userns", "keep-id")
    # The account's own systemd ends at its last logout, with all that it runs.
    ends = rootless and host["cgroupManager"] == "systemd" and not account["stays"]
    return Engine(program, version, ids, namespace, owner, ends)
