"""The files of one fleet: a directory on each of its machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.model.fleet import instance_of
from skyplane_orchestration.provision.local.launch import Addresses
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    FleetMeta,
    GatewayFiles,
    GatewayProcess,
)
from skyplane_orchestration.provision.parallel import by_group, in_parallel

T = TypeVar("T")

_META: Final = "fleet-meta.json"
_FLEET: Final = "fleet.json"
_TOPOLOGY: Final = "topology.json"


class Program(Protocol):
    """How the gateways of an instance are started."""

    def command(self, files: GatewayFiles, fleet_key: str, *, is_end: bool) -> list[str]:
        """A command that starts a gateway and then ends. `is_end`: it talks to object stores."""

    def details(self, files: GatewayFiles, pid: int) -> dict[str, str]:
        """For its handle. `pid`: as the gateway itself sees it."""


@dataclass(frozen=True, slots=True)
class ProcessProgram:
    """A `Program` whose gateways are processes.

    Args:
        command_line: the program of a gateway, without its own options.
    """

    command_line: tuple[str, ...]

    def command(self, files: GatewayFiles, fleet_key: str, *, is_end: bool) -> list[str]:
        config = ("--config", str(files.config_path), "--fleet", fleet_key)
        # With `--detach` the process only forks and exits, so nothing has to wait for it.
        return [*self.command_line, *config, "--detach"]

    def details(self, files: GatewayFiles, pid: int) -> dict[str, str]:
        return {"pid": str(pid), "directory": str(files.directory)}


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Where and how the gateways of one instance run.

    Args:
        directory: the fleet's directory on the instance's machine.
        addresses: to listen on.
        program: starts the gateways.
        search_path: where Python looks for modules first.
        ports: to listen on, two per gateway; empty for any.
    """

    directory: FleetDirectory
    addresses: Addresses
    program: Program
    search_path: tuple[str, ...] = ()
    ports: range = range(0)


@dataclass(frozen=True, slots=True)
class FleetFiles:
    """The directories of one fleet, at least one, each on another machine.

    `settings` has those of each instance, for a fleet that is brought up.
    """

    directories: tuple[FleetDirectory, ...]
    settings: Mapping[str, InstanceSettings] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.directories[0].key

    def settings_of(self, node: str) -> InstanceSettings:
        return self.settings[instance_of(node)]

    def gateway(self, node: str) -> GatewayFiles:
        return self.settings_of(node).directory.gateway(node)

    def exists(self) -> bool:
        return any(self._each(lambda directory: directory.machine.exists(directory.path)))

    def gateways(self) -> tuple[GatewayFiles, ...]:
        return tuple(files for group in self._each(FleetDirectory.gateways) for files in group)

    def processes(self) -> tuple[GatewayProcess, ...]:
        found = self._each(FleetDirectory.processes)
        return tuple(process for group in found for process in group)

    def on_machines(self, nodes: Iterable[str], call: Callable[[str], T]) -> dict[str, T]:
        """Node -> result. Nodes of a machine are called in turn, and all machines at once."""
        return by_group(nodes, lambda node: self.settings_of(node).directory, call)

    def _each(self, call: Callable[[FleetDirectory], T]) -> list[T]:
        """The results for all directories, at once."""
        return in_parallel([partial(call, directory) for directory in self.directories])

    @contextlib.contextmanager
    def locked(self, *, create: bool, timeout_s: float, clock: Clock) -> Iterator[None]:
        """Hold the lock of each directory; see `FleetDirectory.locked`.

        All callers take them in the order of `directories`, so two of them never wait for each
        other. A fleet exists if one of its directories does: the last gateway of a machine takes
        that machine's directory along.
        """
        several = len(self.directories) > 1
        if several and not create and not self.exists():
            raise FileNotFoundError(f"fleet {self.key} is gone")
        with contextlib.ExitStack() as stack:
            for directory in self.directories:
                stack.enter_context(
                    directory.locked(create=create or several, timeout_s=timeout_s, clock=clock)
                )
            yield

    def wall_s(self, clock: Clock) -> float:
        """The time on its machines; `clock` is that of this machine."""
        machine = self.directories[0].machine
        return machine.wall_s() if machine.name else clock.wall()

    def read_meta(self) -> FleetMeta | None:
        """The record; None if there is none, or if another release wrote it."""
        for document in self._found(_META):
            with contextlib.suppress(TypeError):
                return FleetMeta(**document)
        return None

    def read_fleet(self) -> dict[str, Any] | None:
        return next(iter(self._found(_FLEET)), None)

    def read_topology(self) -> dict[str, Any] | None:
        return self.directories[0].read(_TOPOLOGY)

    def write_meta(self, meta: FleetMeta) -> None:
        self._write(_META, asdict(meta))

    def write_fleet(self, document: Mapping[str, Any]) -> None:
        self._write(_FLEET, document)

    def write_topology(self, topology: Mapping[str, Any]) -> None:
        self.directories[0].write(_TOPOLOGY, topology)

    def _found(self, name: str) -> list[dict[str, Any]]:
        """A document, from each of its machines that has it."""
        found = self._each(lambda directory: directory.read(name))
        return [document for document in found if document is not None]

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        self._each(lambda directory: directory.write(name, document))

    def clear(self) -> None:
        self._each(FleetDirectory.clear)

    def remove(self) -> None:
        self._each(FleetDirectory.remove)
