"""How podman and docker are recognised, and as whom gateways run with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.ssh.engine import Engine, find_engine, usable_engine
from skyplane_orchestration.provision.ssh.machine import RemoteMachine

ACCOUNT = {"user": 1000, "group": 100, "name": "skyplane", "stays": True}
ROOT = {"user": 0, "group": 0, "name": "root", "stays": True}
KEEP = ("--http-proxy=false", "--userns", "keep-id")


def podman(*, rootless: bool = True, cgroups: str = "systemd") -> dict[str, Any]:
    host = {"security": {"rootless": rootless}, "cgroupManager": cgroups}
    return {"host": host, "version": {"Version": "5.4.0"}}


def docker(*options: str, **more: Any) -> dict[str, Any]:
    return {"ServerVersion": "28.2.2", "SecurityOptions": ["name=seccomp", *options], **more}


def machine(account: dict[str, Any], **engines: dict[str, Any] | str) -> RemoteMachine:
    """A host with these engines: what `info` prints, or how it fails."""

    def call(verb: str, paths: Any, values: tuple[Any, ...], options: Any) -> Any:
        if verb == "account":
            return account
        if verb == "program_path":
            return f"/usr/bin/{values[0]}" if values[0] in engines else ""
        if verb == "begin_program":
            return list(engines).index(values[0][0])
        said = list(engines.values())[values[0]]
        return [0, json.dumps(said), ""] if isinstance(said, dict) else [125, "", said]

    return RemoteMachine("10.0.0.5", call)


@pytest.mark.parametrize(
    ("account", "engines", "found"),
    [
        (ACCOUNT, {"podman": podman()}, Engine("podman", "5.4.0", "1000:100", KEEP)),
        (
            ROOT,
            {"podman": podman(rootless=False)},
            Engine("podman", "5.4.0", "10001:10001", ("--http-proxy=false",), 10001),
        ),
        (
            {**ACCOUNT, "stays": False},
            {"podman": podman()},
            Engine("podman", "5.4.0", "1000:100", KEEP, ends_at_logout=True),
        ),
        (
            {**ACCOUNT, "stays": False},
            {"podman": podman(cgroups="cgroupfs")},
            Engine("podman", "5.4.0", "1000:100", KEEP),
        ),
        (
            ACCOUNT,
            {"docker": docker()},
            Engine("docker", "28.2.2", "1000:100", ("--userns", "host")),
        ),
        (
            ROOT,
            {"docker": docker()},
            Engine("docker", "28.2.2", "10001:10001", ("--userns", "host"), 10001),
        ),
        (ACCOUNT, {"docker": docker("name=rootless")}, Engine("docker", "28.2.2", "0:0")),
        (
            ACCOUNT,
            {"podman": "cannot find newuidmap", "docker": docker()},
            Engine("docker", "28.2.2", "1000:100", ("--userns", "host")),
        ),
        (ACCOUNT, {}, None),
    ],
)
def test_gateways_run_as_the_account_and_never_as_root(
    account: dict[str, Any], engines: dict[str, Any], found: Engine | None
) -> None:
    assert find_engine(machine(account, **engines)) == found


def test_engines_that_do_not_work_are_named_with_their_reasons() -> None:
    refusing = docker(ServerErrors=["permission denied"])
    with pytest.raises(ConfigurationInvalid) as caught:
        find_engine(machine(ACCOUNT, podman="cannot find\nnewuidmap", docker=refusing))
    assert str(caught.value).startswith(
        "host 10.0.0.5 cannot run containers: podman does not work there: cannot find newuidmap;"
        " docker does not work there: permission denied;"
    )


def test_containers_that_end_at_the_logout_are_refused() -> None:
    ending = Engine("podman", "5.4.0", "1000:100", ends_at_logout=True)
    with pytest.raises(
        ConfigurationInvalid, match="loginctl enable-linger skyplane` there as root"
    ):
        usable_engine(machine(ACCOUNT), ending)
