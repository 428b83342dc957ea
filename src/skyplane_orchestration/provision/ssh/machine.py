"""`RemoteMachine`: the files and processes of a user on a host, by its agent."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from skyplane_orchestration.provision.ssh.agent import Agent
from skyplane_orchestration.provision.ssh.package import GatewayPackage

#: Calls a verb of an agent with paths, values and options: see `AgentSession.call`.
AgentCall = Callable[[str, tuple[str, ...], tuple[Any, ...], dict[str, Any]], Any]

#: Most time for a command that only looks, and for one that works on files.
_LOOK_TIMEOUT_S: Final = 60.0
WORK_TIMEOUT_S: Final = 900.0
_MOST_LAST_WORDS: Final = 600


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


class RemoteMachine(Agent):
    """Each verb of the agent is one request to that of the host."""

    def __init__(self, name: str, call: AgentCall) -> None:
        super().__init__(name)
        self._agent_call = call

    def call(self, verb: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Paths come first among the arguments of each verb."""
        paths = tuple(str(one) for one in arguments if isinstance(one, Path))
        return self._agent_call(verb, paths, tuple(arguments[len(paths) :]), dict(options))

    def run(self, *command: str, timeout_s: float = _LOOK_TIMEOUT_S) -> Ended:
        """Run a program to its end."""
        number = self.begin_program(list(command), timeout_s)
        while (ended := self.end_of_program(number)) is None:
            pass  # The agent waits for a while before it says so.
        return Ended(*ended)

    def bring(self, package: GatewayPackage, folder: Path) -> None:
        """Put the gateway's package into a folder, unless it is there."""
        file = folder / package.name
        if not self.exists(file):
            self.put(file, base64.b64encode(package.content).decode())


def _sent_to_host(verb: str) -> Callable[..., Any]:
    def send(machine: RemoteMachine, *arguments: Any, **options: Any) -> Any:
        return machine.call(verb, arguments, options)

    return send


# All of them, without a list: one that is missing in a list would be done on this machine.
for _name, _ in inspect.getmembers(Agent, inspect.isfunction):
    if not _name.startswith("_"):
        setattr(RemoteMachine, _name, _sent_to_host(_name))
