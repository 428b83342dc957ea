"""The agent, as a process of this machine."""

from __future__ import annotations

import json
import subprocess
import sys

from skyplane_orchestration.provision.ssh.agent import READY
from skyplane_orchestration.provision.ssh.connection import BOOTSTRAP, agent_sources


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
