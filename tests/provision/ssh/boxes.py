"""Hosts whose gateways are containers, with a stand-in for podman and docker."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.provision import ssh_server
from tests.provision.conftest import STAND_INS, SshHarness
from tests.provision.ssh import stand_in_engine

from skyplane_orchestration.provision.ssh import SshProvisioner
from skyplane_orchestration.provision.ssh.options import SshHost

IMAGE: Final = "registry.example/skyplane-gateway@sha256:" + "ab" * 32
MARK: Final = "localhost/skyplane-brought:" + "ab" * 32


@dataclass
class Box:
    """Hosts whose accounts have a stand-in engine each, with the same programs and facts.

    Args:
        state: folder of the stand-in; all of the account's programs are in its `bin` and `tools`.
        interpreter: a Python for the agent.
    """

    state: Path
    interpreter: str

    @classmethod
    def made(cls, server: ssh_server.Server) -> Box:
        """With podman, and an image that can be pulled."""
        box = cls(server.make_folder(), server.python)
        for source in (*STAND_INS, Path(stand_in_engine.__file__)):
            shutil.copyfile(source, box.state / source.name)
        (box.state / "tools").mkdir()
        for tool in ("sh", "python3", "id", "grep", "timeout", "env", "chown"):
            found = shutil.which(tool, path="/usr/bin:/bin")
            assert found is not None
            (box.state / "tools" / tool).symlink_to(found)
        for name in ("calls", *map(stand_in_engine.state_name, ssh_server.ADDRESSES)):
            (box.state / name).touch()
            (box.state / name).chmod(0o666)
        box.facts()
        box.install("podman")
        return box

    def python(self, address: str, *words: str) -> str:
        """The Python of a host whose containers get these words for their gateway."""
        path = self.state / "-".join(["python", address, *words]).replace("/", ":")
        # Real engines of this machine are not to be found.
        search = f"PATH={self.state}/bin:{self.state}/tools STAND_IN_WORDS='{' '.join(words)}'"
        search += f" STAND_IN_HOST={address}"
        ssh_server.write_program(path, f'#!/bin/sh\n{search} exec {self.interpreter} "$@"\n')
        return str(path)

    def facts(self, **changed: Any) -> None:
        """What the engine is and does from now on."""
        facts = {"info": {}, "registry": [IMAGE], **changed}
        (self.state / "facts.json").write_text(json.dumps(facts))

    def install(self, *programs: str) -> None:
        """Exactly these programs are there."""
        shutil.rmtree(self.state / "bin", ignore_errors=True)
        (self.state / "bin").mkdir()
        for program in programs:
            path = self.state / "bin" / program
            words = f"python3 -I -S {self.state}/stand_in_engine.py {self.state} {program}"
            path.write_text(f'#!/bin/sh\nexec {words} {self.state}/fake_supervisor.py "$@"\n')
            path.chmod(0o755)

    def has(self) -> tuple[int, list[str]]:
        """The number of their containers, and their images."""
        containers, images = 0, set[str]()
        for address in ssh_server.ADDRESSES:
            with stand_in_engine.held_state(self.state, address) as state:
                containers += len(state["containers"])
                images |= set(state["images"])
        return containers, sorted(images)

    def calls(self, verb: str) -> list[list[str]]:
        lines = (self.state / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call[1] == verb]


class ContainerHarness(SshHarness):
    """The ssh provisioner, with two hosts that have a stand-in engine each."""

    def __init__(self, server: ssh_server.Server) -> None:
        super().__init__(server)
        self.box = Box.made(server)

    def provisioner(  # type: ignore[override]
        self, *extra: str, **options: Any
    ) -> SshProvisioner:
        given: Mapping[str, tuple[SshHost, ...]] = options.pop("hosts", self.ssh_options.hosts)
        hosts = {
            region: tuple(
                replace(
                    host,
                    image=IMAGE,
                    python=self.box.python(host.address, *extra)
                    if host.python == self.interpreter
                    else host.python,
                )
                for host in group
            )
            for region, group in given.items()
        }
        return super().provisioner(hosts=hosts, **options)

    def running(self) -> dict[int, str]:
        return {pid: line for pid, line in super().running().items() if " run " not in line}

    def traces(self) -> list[str]:
        containers, images = self.box.has()
        return [*super().traces(), *images, *["a container"] * containers]
