"""`RemoteMachine`: the files and processes of a user on a host, by its agent."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from skyplane_orchestration.provision.ssh.package import GatewayPackage

#: Calls a verb of an agent with paths, values and options: see `AgentSession.call`.
AgentCall = Callable[[str, tuple[str, ...], tuple[Any, ...], dict[str, Any]], Any]


#: Most time for a command that only looks, and for one that works on files.
_LOOK_TIMEOUT_S: Final = 60.0
WORK_TIMEOUT_S: Final = 900.0
_MOST_LAST_WORDS: Final = 400


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended on a host."""

    status: int
    output: str
    errors: str

    @property
    def said(self) -> str:
        """The end of what it said about a failure, in one line."""
        said = " ".join((self.errors.strip() or self.output).split())
        return said[-_MOST_LAST_WORDS:] or f"it says nothing, with status {self.status}"


class RemoteMachine:
    """See `processes.machine.Machine`; each verb is one request to the host's agent."""

    def __init__(self, name: str, call: AgentCall) -> None:
        self.name = name
        self._agent_call = call

    def _call(self, verb: str, path: Path | None, *values: Any, **options: Any) -> Any:
        paths = () if path is None else (str(path),)
        return self._agent_call(verb, paths, values, options)

    def make_root(self, path: Path) -> None:
        self._call("make_root", path)

    def make_directory(self, path: Path) -> None:
        self._call("make_directory", path)

    def exists(self, path: Path) -> bool:
        return bool(self._call("exists", path))

    def directories(self, path: Path) -> list[str]:
        return list(self._call("directories", path))

    def fill(self, path: Path, files: Mapping[str, str]) -> None:
        self._call("fill", path, dict(files))

    def write(self, path: Path, text: str) -> None:
        self._call("write", path, text)

    def read(self, path: Path) -> str | None:
        text: str | None = self._call("read", path)
        return text

    def read_end(self, path: Path, max_bytes: int) -> str:
        return str(self._call("read_end", path, max_bytes))

    def clear(self, path: Path) -> None:
        self._call("clear", path)

    def remove(self, path: Path) -> None:
        self._call("remove", path)

    def try_lock(self, path: Path) -> int | None:
        lock: int | None = self._call("try_lock", path)
        return lock

    def unlock(self, lock: int) -> None:
        self._call("unlock", None, lock)

    def scan(self, run_root: Path, fleet_key: str) -> list[tuple[int, str, int]]:
        found = self._call("scan", run_root, fleet_key)
        return [(pid, directory, owner) for pid, directory, owner in found]

    def send(self, directory: Path, pid: int, owner: int, number: int) -> None:
        self._call("send", directory, pid, owner, int(number))

    def start(
        self, directory: Path, argv: Sequence[str], search_path: Sequence[str], *, is_end: bool
    ) -> int:
        return int(self._call("start", directory, list(argv), list(search_path), is_end=is_end))

    def poll(self, launcher: int) -> int | None:
        status: int | None = self._call("poll", None, launcher)
        return status

    def free_ports(self, addresses: Sequence[str], ports: Sequence[int]) -> list[int]:
        return list(self._call("free_ports", None, list(addresses), list(ports)))

    def processors(self) -> int:
        return int(self._call("processors", None))

    def open_files_limit(self) -> int:
        return int(self._call("open_files_limit", None))

    def wall_s(self) -> float:
        return float(self._call("wall_s", None))

    # -- what a machine elsewhere needs besides

    def default_root(self) -> Path:
        return Path(self._call("default_root", None))

    def remove_root(self, path: Path) -> None:
        """Remove a root without fleets."""
        self._call("remove_root", path)

    def missing_modules(self, names: Sequence[str]) -> list[str]:
        return list(self._call("missing_modules", None, list(names)))

    def python_version(self) -> str:
        return str(self._call("python_version", None))

    def why_not_listen(self, address: str) -> str:
        """Why a gateway cannot listen on an address; empty if it can."""
        return str(self._call("why_not_listen", None, address))

    def make_environment(self, path: Path, requirements: str) -> str:
        """Make a virtual environment, unless it is there; why it cannot be made, or empty."""
        self.make_root(path.parent)
        while (reason := self._call("make_environment", path, requirements)) is None:
            pass  # The agent waits for a while before it says so.
        return str(reason)

    def program_path(self, name: str) -> str:
        """Where a program is; empty if it is not installed."""
        return str(self._call("program_path", None, name))

    def account(self) -> dict[str, Any]:
        """`user`, `group` (ids), `name`, `stays`: see `Programs.account`."""
        return dict(self._call("account", None))

    def run(self, *command: str, timeout_s: float = _LOOK_TIMEOUT_S) -> Ended:
        """Run a program to its end."""
        number = self._call("begin_program", None, list(command), timeout_s)
        while (ended := self._call("end_of_program", None, number)) is None:
            pass  # The agent waits for a while before it says so.
        return Ended(*ended)

    def bring(self, package: GatewayPackage, folder: Path) -> None:
        """Put the gateway's package into a folder, unless it is there."""
        place = folder / package.name
        if not self.exists(place):
            self._call("put", place, base64.b64encode(package.content).decode())
