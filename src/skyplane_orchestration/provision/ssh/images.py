"""The gateway's image on a host: brought if it is missing, removed if it was brought.

A tag marks a brought image, so the mark is there as long as the image. A file in each fleet's
directory says which image it needs.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid, ProvisionFailed
from skyplane_orchestration.provision.local.run_directory import DirectoryBusy, FleetDirectory
from skyplane_orchestration.provision.local.runner import Runner
from skyplane_orchestration.provision.ssh.engine import Engine
from skyplane_orchestration.provision.ssh.logins import OpenHost
from skyplane_orchestration.provision.ssh.machine import WORK_TIMEOUT_S, RemoteMachine

BROUGHT: Final = "localhost/skyplane-brought"
_NEEDED: Final = "image"
#: In one process group of the host, which runs on when its session ends: a pull that nobody awaits
#: leaves a marked image.
_PULL: Final = '"$0" pull --quiet "$1" && { "$0" tag "$1" "$2" || { "$0" rmi "$1"; exit 1; }; }'
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger(__name__)


def bring_image(machine: RemoteMachine, engine: Engine, image: str) -> None:
    """Pull an image unless the host has it. Raises ProvisionFailed."""
    if _has(machine, engine, image):
        return
    mark = f"{BROUGHT}:{_digest(image)}"
    pull = ("sh", "-c", _PULL, engine.program, image, mark)
    ended = machine.run(*pull, timeout_s=WORK_TIMEOUT_S)
    if ended.status != 0:
        raise ProvisionFailed(
            f"{engine.program} on host {machine.name} cannot pull image {image}: {ended.said};"
            f" let the host reach the registry, log its account in (`{engine.program} login`), or"
            " correct image"
        )


def keep_image(entry: OpenHost, directory: FleetDirectory, runner: Runner) -> None:
    """Note that a fleet needs its host's image, so that no other fleet's end removes it.

    Until then it may have been removed, and is brought once more. Raises ConfigurationInvalid,
    ProvisionFailed and DirectoryBusy.
    """
    machine, image = entry.container_machine, entry.host.image
    with entry.root.locked(timeout_s=runner.options.lock_timeout_s, clock=runner.clock):
        machine.write(directory.path / _NEEDED, image)
    bring_image(machine, machine.usable_engine(), image)


def free_images(entry: OpenHost, runner: Runner) -> None:
    """Remove the images that were brought and that neither a fleet nor a container needs.

    A failure is logged. An image that cannot be removed stays marked.
    """
    if not entry.host.image:
        return
    try:
        engine = entry.container_machine.engine
        if engine is not None:
            _free_images(entry, engine, runner)
    except (ConfigurationInvalid, DirectoryBusy, OSError) as error:
        log.warning("images of host %s may be left: %s", entry.host.name, error)


def _free_images(entry: OpenHost, engine: Engine, runner: Runner) -> None:
    """Raises DirectoryBusy and OSError."""
    machine, root = entry.machine, entry.root
    listed = machine.run(engine.program, "images", "--format", "{{.Tag}}", BROUGHT)
    brought = {tag for tag in listed.output.split() if _DIGEST.fullmatch(tag)}
    if not brought:
        return
    with root.locked(timeout_s=runner.options.lock_timeout_s, clock=runner.clock):
        needed = {_needed(machine, fleet.path) for fleet in root.fleets()}
        for digest in sorted(brought - needed):
            _remove(machine, engine, digest)


def _needed(machine: RemoteMachine, fleet: Path) -> str:
    """The digest of the image that a fleet needs; empty for none."""
    return _digest(machine.read(fleet / _NEEDED) or "")


def _remove(machine: RemoteMachine, engine: Engine, digest: str) -> None:
    mark = f"{BROUGHT}:{digest}"
    shown = machine.run(engine.program, "image", "inspect", mark)
    if shown.status != 0:
        return  # Another account, or another directory of this one, has removed it.
    (image,) = json.loads(shown.output)
    users = ("ps", "--all", "--quiet", "--filter", f"ancestor={image['Id']}")
    if machine.run(engine.program, *users).output.strip():
        return
    pulled = [
        name
        for name in image.get("RepoDigests") or ()
        if name.endswith(f"@sha256:{digest}") and not name.startswith(f"{BROUGHT}@")
    ]
    # The mark goes last, so that another attempt finds what is left.
    for name in (*pulled, mark):
        ended = machine.run(engine.program, "rmi", name, timeout_s=WORK_TIMEOUT_S)
        if ended.status != 0 and _has(machine, engine, name):
            log.warning("%s of %s cannot be removed: %s", name, machine.name, ended.said)
            return


def _has(machine: RemoteMachine, engine: Engine, image: str) -> bool:
    found = machine.run(engine.program, "image", "inspect", "--format", "{{.Id}}", image)
    return found.status == 0


def _digest(image: str) -> str:
    return image.rpartition(":")[2]
