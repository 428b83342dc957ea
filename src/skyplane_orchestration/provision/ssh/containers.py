"""Gateways as containers of a host: how they start, and that none is left."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.container import MOST_OPEN_FILES, run_options
from skyplane_orchestration.provision.local.machine import PROXIES
from skyplane_orchestration.provision.local.run_directory import GatewayFiles
from skyplane_orchestration.provision.ssh.engine import Engine, find_engine, usable_engine
from skyplane_orchestration.provision.ssh.machine import WORK_TIMEOUT_S, RemoteMachine

#: Labels, by the names of the tags on cloud instances.
_DEPLOYMENT: Final = "skyplane:deployment"
_FLEET: Final = "skyplane:fleet"
_NODE: Final = "skyplane:node"
#: The fleet's directory: accounts that share a Docker have directories of their own.
_DIRECTORY: Final = "skyplane:directory"
#: A container that ends by itself may be in the list for a moment, or be refused as busy.
_REMOVALS: Final = 20


@dataclass(frozen=True, slots=True)
class ContainerProgram:
    """A `Program` whose gateways are containers.

    Args:
        image: with its digest.
        open_files: most open files of a gateway.
    """

    engine: Engine
    image: str
    deployment: str
    open_files: int = MOST_OPEN_FILES

    def command(self, files: GatewayFiles, fleet_key: str, *, is_end: bool) -> list[str]:
        directory = str(files.directory)
        labels = {
            _DEPLOYMENT: self.deployment,
            _FLEET: fleet_key,
            _NODE: files.node,
            _DIRECTORY: str(files.directory.parent),
        }
        # A name without a value: the value comes from the account's environment.
        proxies = sorted(PROXIES) if is_end else []
        return [
            *(self.engine.program, "run", "--detach", "--pull", "never"),
            *run_options(self.engine.user, self.open_files),
            *self.engine.namespace,
            # The provisioner watches it, and Podman would need systemd for its timer.
            "--no-healthcheck",
            *(word for label in labels.items() for word in ("--label", "=".join(label))),
            *("--mount", self.engine.bind(directory), "--env", f"HOME={directory}"),
            *(word for name in proxies for word in ("--env", name)),
            self.image,
            *("--config", str(files.config_path), "--fleet", fleet_key),
            *("--log-file", f"{directory}/gateway.log"),
        ]

    def details(self, files: GatewayFiles, pid: int) -> dict[str, str]:
        return {"directory": str(files.directory), self.engine.program: self.image}


def trial_command(engine: Engine, image: str, open_files: int) -> list[str]:
    """A command that runs a container of an image and ends at once, with the same options."""
    return [
        *(engine.program, "run", "--pull", "never"),
        *run_options(engine.user, open_files),
        *engine.namespace,
        *("--no-healthcheck", image, "--help"),
    ]


def open_files_of(machine: RemoteMachine) -> int:
    """Most open files that a container of the account may have."""
    limit = machine.open_files_limit()
    return MOST_OPEN_FILES if limit < 0 else min(limit, MOST_OPEN_FILES)


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a gateway, running or not."""

    number: str
    fleet_key: str
    node: str
    directory: Path


class ContainerMachine(RemoteMachine):
    """A host whose gateways are containers; their processes are seen as any others."""

    @cached_property
    def engine(self) -> Engine | None:
        """None if none is installed, so it has no containers. Raises ConfigurationInvalid."""
        return find_engine(self)

    def usable_engine(self) -> Engine:
        """Its engine, if gateways can run with it. Raises ConfigurationInvalid."""
        return usable_engine(self, self.engine)

    def start(
        self, directory: Path, argv: Sequence[str], search_path: Sequence[str], *, is_end: bool
    ) -> int:
        owner = None if self.engine is None else self.engine.owner
        return self.start_container(directory, list(argv), owner)

    def send(self, directory: Path, pid: int, owner: int, number: int) -> None:
        # It is process 1 there, which no SIGTERM ends before the gateway waits for one. Until
        # then it has begun nothing.
        if number == signal.SIGTERM and not self.exists(directory / "ready.json"):
            number = signal.SIGKILL
        super().send(directory, pid, owner, number)

    def clear(self, path: Path) -> None:
        self._remove_containers(path)
        super().clear(path)

    def remove(self, path: Path) -> None:
        self._remove_containers(path)
        super().remove(path)

    def containers(self, deployment: str) -> list[Container]:
        """All containers of a deployment. Raises OSError."""
        found = []
        for number in self._numbers(f"{_DEPLOYMENT}={deployment}"):
            engine = self._engine()
            assert engine is not None
            shown = self.run(
                engine.program, "inspect", "--format", "{{json .Config.Labels}}", number
            )
            if shown.status == 0:  # Others have ended in the meantime.
                found.append(_container(number, json.loads(shown.output)))
        return found

    def remove_container(self, container: Container) -> None:
        """Raises OSError."""
        self._remove(lambda: [container.number] if self._exists(container) else [])

    def _exists(self, container: Container) -> bool:
        return container.number in self._numbers(f"{_FLEET}={container.fleet_key}")

    def _remove_containers(self, fleet: Path) -> None:
        """Also those that were never started, or ended with the machine. Raises OSError."""
        self._remove(lambda: self._numbers(f"{_DIRECTORY}={fleet}"))

    def _remove(self, find: Callable[[], list[str]]) -> None:
        said = ""
        for _ in range(_REMOVALS):
            numbers = find()
            if not numbers:
                return
            engine = self._engine()
            assert engine is not None
            for verb in (("kill",), ("rm", "--force")):
                ended = self.run(engine.program, *verb, *numbers, timeout_s=WORK_TIMEOUT_S)
                said = ended.said
        raise OSError(errno.EBUSY, f"containers cannot be removed: {said}")

    def _numbers(self, label: str) -> list[str]:
        engine = self._engine()
        if engine is None:
            return []
        listed = self.run(
            engine.program,
            *("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}"),
        )
        if listed.status != 0:
            raise OSError(errno.EIO, f"{engine.program} lists no containers: {listed.said}")
        return listed.output.split()

    def _engine(self) -> Engine | None:
        try:
            return self.engine
        except ConfigurationInvalid as error:
            raise OSError(errno.EIO, str(error)) from error


def _container(number: str, labels: Mapping[str, str]) -> Container:
    return Container(
        number, labels.get(_FLEET, ""), labels.get(_NODE, ""), Path(labels.get(_DIRECTORY, ""))
    )
