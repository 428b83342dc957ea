"""Hosts of the provisioner `ssh` from Airflow connections."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.provision import ssh_server

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.hooks.ssh_connections import with_ssh_connections
from skyplane_orchestration.provision.ssh.options import SshHost, parse_hosts

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"


def connection(extra: dict[str, Any] | None = None, **fields: Any) -> SimpleNamespace:
    values = {"conn_type": "ssh", "host": "10.0.0.5", "port": None, "login": "me", "password": None}
    return SimpleNamespace(**{**values, **fields}, extra_dejson=extra or {})


def hosts_of(made: SimpleNamespace, **own: Any) -> tuple[SshHost, ...]:
    document = {"local:rack": [{"conn_id": "gw", **own}, "10.0.0.6"]}
    resolved = with_ssh_connections(document, {"gw": made}.__getitem__)
    return parse_hosts(resolved, may_hold_secrets=True)["local:rack"]


@pytest.mark.parametrize(
    ("extra", "fields", "host"),
    [
        ({}, {}, SshHost("10.0.0.5", user="me")),
        (
            {"key_file": "/k", "host_key": "ssh-ed25519 AAAA", "no_host_key_check": "true"},
            {"port": 2222, "login": None, "conn_type": "sftp"},
            SshHost("10.0.0.5", 2222, key_file="/k", host_key="ssh-ed25519 AAAA"),
        ),
        ({"host_key": "AAAA"}, {}, SshHost("10.0.0.5", user="me", host_key="ssh-rsa AAAA")),
        (
            {"private_key": KEY, "private_key_passphrase": "p"},
            {"password": "unused"},
            SshHost("10.0.0.5", user="me", private_key=KEY, passphrase="p"),
        ),
        (
            {"key_file": "/k"},
            {"password": "p"},
            SshHost("10.0.0.5", user="me", key_file="/k", passphrase="p"),
        ),
    ],
)
def test_a_host_has_the_fields_of_its_connection(
    extra: dict[str, Any], fields: dict[str, Any], host: SshHost
) -> None:
    assert hosts_of(connection(extra, **fields)) == (host, SshHost("10.0.0.6"))


def test_a_host_says_itself_what_a_connection_cannot() -> None:
    host, _ = hosts_of(connection(), data_address="10.1.0.5", ports="40000-40009")
    assert (host.address, host.data_address, host.ports) == ("10.0.0.5", "10.1.0.5", "40000-40009")


@pytest.mark.parametrize(
    ("made", "own", "said"),
    [
        (connection(conn_type="http"), {}, "'gw' has the type 'http'.*ssh or sftp"),
        (connection(host=""), {}, "'gw' has no host"),
        (connection(password="p"), {}, "'gw' has a password.*by keys only"),
        (connection(), {"user": "you", "port": 1}, "'gw' and port, user; the connection says"),
        (connection({"key_file": "k", "private_key": KEY}), {}, "a key_file and a private_key"),
    ],
)
def test_what_cannot_be_used_is_refused(
    made: SimpleNamespace, own: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationInvalid, match=said):
        hosts_of(made, **own)


@pytest.fixture(scope="module")
def sshd() -> Iterator[ssh_server.Server]:
    with ssh_server.running_or_skip() as server:
        yield server


def skyplane(**host: Any) -> SimpleNamespace:
    hosts = {"aws:us-east-1": [{"conn_id": "gw", **host}]}
    extra = {"provisioner": "ssh", "hosts": hosts}
    return SimpleNamespace(conn_type="skyplane", password=None, extra_dejson=extra)


def test_the_connection_test_logs_in_with_the_key_of_the_connection(
    sshd: ssh_server.Server, connections: dict[str, SimpleNamespace]
) -> None:
    """Its directory cannot be made, so that no environment for gateways is."""
    connections["skyplane_default"] = skyplane(directory="/proc/fleets")
    key = (sshd.folder / "user_key").read_text()
    fields = {"host": ssh_server.ADDRESSES[0], "port": sshd.port, "login": sshd.user}
    extra = {"private_key": key.strip(), "host_key": sshd.host_key}
    connections["gw"] = connection(extra, **fields)
    works, message = SkyplaneHook().test_connection()
    name = f"{sshd.user}@{ssh_server.ADDRESSES[0]}:{sshd.port}"
    assert not works
    assert f"No such file or directory (on host {name})" in message
    connections["gw"] = connection({**extra, "private_key": key[:60]}, **fields)
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert "private_key of host" in message
    assert "cannot be read" in message
    other = (sshd.folder / "other_key.pub").read_text()
    connections["gw"] = connection({**extra, "host_key": other}, **fields)
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert "another key than the known one" in message
    assert key.splitlines()[1] not in message


def test_a_missing_connection_is_named(connections: dict[str, SimpleNamespace]) -> None:
    connections["skyplane_default"] = skyplane()
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert "no connection 'gw'" in message


@pytest.mark.parametrize("name", ["private_key", "passphrase"])
def test_a_secret_of_a_host_belongs_to_its_own_connection(
    connections: dict[str, SimpleNamespace], name: str
) -> None:
    connections["skyplane_default"] = skyplane(**{name: "hush"})
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert "cannot have private keys" in message
    assert "hush" not in message


def test_no_text_of_a_host_shows_a_secret() -> None:
    host, _ = hosts_of(connection({"private_key": "hush", "private_key_passphrase": "hush"}))
    assert "hush" not in repr(host)
    with pytest.raises(ConfigurationInvalid, match=r"private_key must be text, not this"):
        hosts_of(connection({"private_key": ["hush"]}))
