"""Workers that get out by a proxy, which lets them call port 443 and no other."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from tests.clouds.gateways import IMAGE
from tests.connect_proxy import ConnectProxy, connect_proxy
from tests.e2e.cloud_sites import SITES
from tests.e2e.conftest import filled

from skyplane_gateway.common.dialing import through
from skyplane_orchestration.provision.fleet import forwarding
from strict_clouds.firewall import IngressRule

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

    from strict_clouds.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def may_listen_at_443() -> bool:
    try:
        socket.create_server(("127.77.255.255", 443)).close()
    except PermissionError:
        return False
    return True


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Machines of the fakes have addresses of loopback, which nothing else dials by a proxy."""
    if not may_listen_at_443():
        pytest.skip("machines of the fakes listen at port 443, which needs root here")
    with connect_proxy(lambda host, port: (host, port) if port == 443 else None) as made:
        monkeypatch.setattr(
            forwarding, "dial", lambda host, port, s: through(urlsplit(made.url()), host, port, s)
        )
        yield made


@pytest.mark.parametrize(
    ("cloud", "software"), [("aws", "push"), ("azure", "push"), ("gcp", "image")]
)
def test_a_worker_copies_and_tears_down_by_port_443_alone(
    cloud: str,
    software: str,
    proxy: ConnectProxy,
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    world: World,
    tmp_path: Path,
) -> None:
    """Two gateways on each of three instances: the worker calls all of them."""
    bucket = f"port-443-{cloud}-{software}"
    made = filled(servers, bucket)
    with SITES[cloud](world) as site:
        ends = [
            replace(one, region=region)
            for one, region in zip((made.source, made.destination), site.regions, strict=True)
        ]
        job = replace(made, source=ends[0], destination=ends[1])
        more = {"image": IMAGE.image} if software == "image" else {}
        client = site.client(
            kit, tmp_path / "clouds.yaml", control_port=443, processes_per_instance=2, **more
        )
        fleet = client.provision(site.relayed(kit))
        result = client.transfer(job, fleet)
        assert (result.objects, result.failed) == (3, 0)
        machines = {machine.address: machine.firewall for machine in world.machines}
        for firewall in machines.values():
            by_workers = [rule for rule in firewall.rules if rule.source_cidr == "127.0.0.1/32"]
            assert by_workers == [IngressRule(443, 443, "127.0.0.1/32")]
            assert {port for peer, port in firewall.connections if peer == "127.0.0.1"} == {443}
        client.teardown(fleet)
        assert {port for _, port in proxy.asked} == {443}
        assert site.fake.leftovers() == {}
    source, destination = servers
    assert destination.objects(bucket, "q/") == source.objects(bucket, "p/")
    assert not [machine for machine in world.machines if machine.is_running]
