"""The agent: does on a host what the ssh provisioner asks, as long as its session lasts.

It gets one request per line on its standard input and answers on its standard output, both JSON.
Nothing of it is installed: its source and those of its helpers come over the
session. So it imports the standard library only, and these.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import platform
import select
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from skyplane_orchestration.provision.ssh.programs import Programs

#: The agent ends after this time without a request: a broken network may not end its session.
_IDLE_TIMEOUT_S: Final = 600.0
_ATTEMPTS: Final = 20
READY: Final = "ready"


class Agent(Programs):
    """What a machine does, and what one elsewhere does besides."""

    def make_directory(self, path: Path) -> None:
        """As `Machine.make_directory`; its root may be removed at the same time."""
        for attempt in range(_ATTEMPTS):
            self.make_root(path.parent)
            try:
                return super().make_directory(path)
            except FileNotFoundError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        return None

    def remove_root(self, path: Path) -> None:
        """Remove a root without fleets."""
        with contextlib.suppress(OSError):
            path.rmdir()

    def default_root(self) -> str:
        """The directory for fleets where a host names none."""
        return f"/tmp/skyplane-orch-ssh-{os.geteuid()}"

    def missing_modules(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if importlib.util.find_spec(name) is None]

    def python_version(self) -> str:
        return platform.python_version()

    def why_not_listen(self, address: str) -> str:
        """Why a gateway cannot listen on an address; empty if it can."""
        try:
            socket.create_server((address, 0)).close()
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def start_container(self, directory: Path, command: list[str], owner: int | None) -> int:
        """Start a gateway's container, with this environment; the launcher's process id.

        Args:
            owner: the user and group that the gateway is; None for the account's.
        """
        (directory / "gateway.log").touch(mode=0o600)
        if owner is not None:
            for path in (directory, *directory.iterdir()):
                os.chown(path, owner, owner)
        return self.launch(directory, command, os.environ)

    def put(self, path: Path, content_base64: str) -> None:
        """Write a private file."""
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64decode(content_base64))
        draft.rename(path)


def serve() -> None:
    """Say that requests are welcome, and answer them until the session ends.

    A request is `{"verb", "paths", "values", "options"}`, an answer `{"value"}` or
    `{"error": [errno, reason, file]}`.
    """
    agent = Agent()
    # `select` does not see what a buffer holds. So nothing is sent before this answer, and no
    # request before the answer to the last one.
    _answer({"value": READY})
    while select.select([sys.stdin], [], [], _IDLE_TIMEOUT_S)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            break
        request = json.loads(line)
        paths = [Path(path) for path in request["paths"]]
        try:
            verb = getattr(agent, request["verb"])
            value = verb(*paths, *request["values"], **request["options"])
            answer = {"value": value}
        except OSError as error:
            answer = {"error": [error.errno, error.strerror or str(error), error.filename]}
        _answer(answer)


def _answer(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
