"""The file with the machines of each region."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import Page

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.ssh import SshOptions
from skyplane_orchestration.provision.ssh.options import SshHost, read_hosts

IMAGE = "registry.example/skyplane-gateway@sha256:" + "ab" * 32
FILE = """
defaults: {user: skyplane, python: /opt/gateway/bin/python}
local:rack:
  - {address: 10.0.0.5, key_file: ~/.ssh/rack, port: 2222}
  - 10.0.0.6
aws:eu-west-3:
  - {address: 10.9.0.1, user: ubuntu}
"""


def test_a_host_has_its_own_fields_before_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(FILE)
    python = "/opt/gateway/bin/python"
    assert read_hosts(path) == {
        "local:rack": (
            SshHost("10.0.0.5", 2222, "skyplane", key_file="~/.ssh/rack", python=python),
            SshHost("10.0.0.6", user="skyplane", python=python),
        ),
        "aws:eu-west-3": (SshHost("10.9.0.1", user="ubuntu", python=python),),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "cannot be read"),
        ("- 10.0.0.5", "region tags with lists of hosts"),
        ("defaults: {user: me}", "no region"),
        ("nowhere: [10.0.0.5]", "nowhere"),
        ("local:a: 10.0.0.5", "local:a must have a list of hosts"),
        ("local:a: [{address: a, private_key: b}]", "unknown fields: private_key; known"),
        ("local:a: []", "local:a must have a list of hosts"),
        ("local:a: [5]", "5, which is not a host"),
        ("local:a: [{user: me}]", "no address"),
        ("local:a: [{address: x, password: y}]", "unknown fields: password; known fields: address"),
        ("local:a: [{address: x, port: '22'}]", "a host of local:a: port must be a whole number"),
        ("local:a: [{address: x, port: 0}]", "port 0"),
        ("local:a: [{address: x, user: 5}]", "a host of local:a: user must be text"),
        ("local:a: [{address: x, host_key: AAAA}]", "host_key of x must be a type and a key"),
        ("local:a: [{address: x, directory: tmp}]", "'tmp' of host x is not an absolute path"),
        ("local:a: [{address: x, ports: '40000'}]", "ports of host x must be a first and a last"),
        ("local:a: [{address: x, ports: 5-4}]", "such as 40000-40099, not '5-4'"),
        ("local:a: [{address: x, ports: 0-9}]", "such as 40000-40099, not '0-9'"),
        ("local:a: [{address: x, image: 'gateway:1.0'}]", "image 'gateway:1.0' is not pinned by"),
        (f"local:a: [{{address: x, image: {IMAGE}, directory: '/a,b'}}]", "directory '/a,b' of"),
        ("local:a: [x, x]", "has x twice"),
        ("local:a: ['10.0.0.5:2222']", "'10.0.0.5:2222' is no address; write address: 10.0.0.5"),
        ("local:a: ['gw:22']", "write address: gw and port: 22"),
        ("local:a: [me@gw]", "'me@gw' is no address; write address: gw and user: me"),
        ("local:a: [me@gw:22]", "write address: gw, port: 22 and user: me"),
        ("local:a: ['ssh://gw/']", "'ssh://gw/' is no address; write address: gw"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationInvalid) as caught:
        read_hosts(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    (text,) = Page("docs/how-to/ssh-hosts.md").tested("hosts_file")
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    hosts = read_hosts(path)
    assert [len(group) for group in hosts.values()] == [2, 1]
    assert {host.user for group in hosts.values() for host in group} == {"skyplane"}
    (text,) = Page("docs/how-to/ssh-hosts.md").tested("containers")
    path.write_text(text)
    ((first, second),) = read_hosts(path).values()
    assert first.image == second.image != ""


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"none\.yaml cannot be read"):
        read_hosts(tmp_path / "none.yaml")


def test_a_machine_of_several_regions_is_described_once() -> None:
    same = SshHost("10.0.0.5")
    assert SshOptions({"local:a": (same,), "local:b": (same,)}).all_hosts() == (same,)
    with pytest.raises(ConfigurationInvalid, match=r"10\.0\.0\.5 in two ways"):
        SshOptions({"local:a": (same,), "local:b": (SshHost("10.0.0.5", data_address="10.1.0.5"),)})
