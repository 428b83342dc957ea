"""What the ssh provisioner does besides on hosts with an `image`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skyplane_orchestration.errors import ConfigurationInvalid, ProvisionFailed
from skyplane_orchestration.model.sweep_report import SweptFleet
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.ssh.containers import (
    Container,
    ContainerMachine,
    ContainerProgram,
    open_files_of,
    trial_command,
)
from skyplane_orchestration.provision.ssh.images import bring_image
from skyplane_orchestration.provision.ssh.logins import OpenHost
from skyplane_orchestration.provision.ssh.machine import WORK_TIMEOUT_S


def bring_container_program(entry: OpenHost, deployment: str) -> ContainerProgram:
    """What starts the gateways of a host, whose image is there then.

    Raises ConfigurationInvalid if the host cannot run containers, and ProvisionFailed if it cannot
    pull the image.
    """
    machine, image = entry.container_machine, entry.host.image
    engine = machine.usable_engine()
    bring_image(machine, engine, image)
    return ContainerProgram(engine, image, deployment, open_files_of(machine))


def why_no_container(entry: OpenHost) -> str:
    """Why a host cannot run gateways of its image; empty if it can.

    It pulls the image if it is missing, and runs a container that ends at once.
    """
    machine, image = entry.container_machine, entry.host.image
    try:
        engine = machine.usable_engine()
        bring_image(machine, engine, image)
    except (ConfigurationInvalid, ProvisionFailed) as error:
        return str(error)
    trial = trial_command(engine, image, open_files_of(machine))
    ended = machine.run(*trial, timeout_s=WORK_TIMEOUT_S)
    if ended.status == 0:
        return ""
    return (
        f"{engine.program} on host {machine.name} cannot run a container of image {image}:"
        f" {ended.said}; repair it for this account, or omit image"
    )


def sweep_containers(
    opened: Sequence[OpenHost], deployment: str, *, dry_run: bool
) -> tuple[SweptFleet, ...]:
    """Remove the containers of a deployment whose fleet has no directory any more.

    A machine that has restarted may have lost its directory in `/tmp`, but not its containers.
    """

    def of_host(entry: OpenHost) -> list[SweptFleet]:
        machine = entry.machine
        if not isinstance(machine, ContainerMachine):
            return []
        try:
            lost = [one for one in machine.containers(deployment) if _is_lost(entry, one)]
        except OSError as error:
            return [SweptFleet("", "its containers are not known", (), str(error))]
        return [_swept(machine, one, dry_run=dry_run) for one in lost]

    found = in_parallel([partial(of_host, entry) for entry in opened])
    return tuple(one for group in found for one in group)


def _is_lost(entry: OpenHost, container: Container) -> bool:
    directory = container.directory
    return directory.parent == entry.root.path and not entry.machine.exists(directory)


def _swept(machine: ContainerMachine, container: Container, *, dry_run: bool) -> SweptFleet:
    failure = ""
    if not dry_run:
        try:
            machine.remove_container(container)
        except OSError as error:
            failure = f"host {machine.name}: {error.strerror}"
    reason = "its container has lost its files"
    return SweptFleet(container.fleet_key, reason, (container.node,), failure)
