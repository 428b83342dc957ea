"""Fleets of `SshMachines`, with real gateways behind a real sshd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.provision.samples import SECRET, A, C, make_plan
from tests.provision.ssh_server import Server

from skyplane_orchestration.errors import NotAuthorised
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.provision.ssh import SshProvisioner
from skyplane_orchestration.provision.ssh.options import SshOptions
from skyplane_orchestration.security.authority import Authority, FleetSecret

pytestmark = pytest.mark.long

SPEC = FleetSpec("ab" * 16, 0, "test", make_plan([((A, C), 1.0)], {A: 1, C: 2}))


@dataclass(frozen=True)
class Hosts:
    folder: Path
    options: SshOptions

    def worker(self) -> SshProvisioner:
        """A worker that knows nothing of the others."""
        return SshProvisioner(self.options)

    def ensure(self, secret: FleetSecret = SECRET, spec: FleetSpec = SPEC) -> Fleet:
        return self.worker().ensure(spec, Authority(secret, spec.key))

    def traces(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def hosts(sshd: Server) -> Iterator[Hosts]:
    """Two machines, of which the first serves both regions."""
    folder = sshd.make_folder()
    one, other = (sshd.host(number, folder) for number in range(2))
    made = Hosts(folder, SshOptions({A: (one,), C: (other, one)}, processes_per_instance=1))
    yield made
    made.worker().destroy(SPEC.key)


def test_another_secret_is_refused_and_changes_nothing(hosts: Hosts) -> None:
    fleet = hosts.ensure()
    with pytest.raises(NotAuthorised):
        hosts.ensure(FleetSecret(b"the fleet secret of somebody else"))
    assert hosts.ensure().gateways == fleet.gateways


def test_a_second_fleet_shares_the_hosts(hosts: Hosts) -> None:
    first = hosts.ensure()
    other = replace(SPEC, key="cd" * 16)
    second = hosts.ensure(spec=other)
    ports = [
        port for fleet in (first, second) for g in fleet.gateways for port in (g.control, g.data)
    ]
    assert len(set(ports)) == len(ports)
    # A connection is given one above.
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert max(port for _, port in ports) < int(given[0])
    hosts.worker().destroy(other.key)
    assert hosts.ensure().gateways == first.gateways
