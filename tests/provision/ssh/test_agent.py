"""The agent, as a process of this machine."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

from skyplane_orchestration.provision.ssh.agent import READY, Agent
from skyplane_orchestration.provision.ssh.connection import BOOTSTRAP, agent_sources
from skyplane_orchestration.provision.ssh.machine import RemoteMachine


def test_the_agent_says_when_requests_are_welcome() -> None:
    """A request that came together with the sources stayed in a buffer, and had no answer."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", BOOTSTRAP],
        input=json.dumps(agent_sources()) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    version, ready = done.stdout.splitlines()
    assert version.endswith(json.dumps(list(sys.version_info[:2])))
    assert json.loads(ready) == {"value": READY}


def test_every_verb_of_the_agent_is_a_request_to_the_host(tmp_path: Path) -> None:
    """A verb that a remote machine did itself would work on the orchestrator's files."""
    asked: list[str] = []

    def call(verb: str, *_: object) -> None:
        asked.append(verb)

    machine = RemoteMachine("away", call)
    verbs = [name for name, _ in inspect.getmembers(Agent, inspect.isfunction) if name[0] != "_"]
    assert {"remove", "start", "put", "begin_program"} <= set(verbs)
    for verb in verbs:
        getattr(machine, verb)(tmp_path)
    assert asked == verbs
