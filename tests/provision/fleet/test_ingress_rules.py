"""Rules are as narrow as the routes of a fleet allow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from skyplane_gateway.config import Route
from skyplane_orchestration.model.fleet import INTERNAL_HOST, GatewayHandle, instance_of
from skyplane_orchestration.provision.fleet.ingress_rules import (
    control_ingress,
    normal,
    peer_ingress,
)
from skyplane_orchestration.provision.fleet.machines import (
    Ingress,
    Reach,
    control_port,
    data_port,
)

PROCESSES = 2
A, R, Z = "aws:us-east-1", "gcp:us-central1", "azure:westeurope"
ADDRESSES = {
    f"{A}/0": "192.0.2.1",
    f"{A}/1": "192.0.2.2",
    f"{R}/0": "192.0.2.3",
    f"{Z}/0": "192.0.2.4",
}
CONTROL, DATA = (7601, 7602), (7603, 7604)


def handles() -> dict[str, GatewayHandle]:
    return {
        node: GatewayHandle(
            node,
            region=node.partition("/")[0],
            control=(address, control_port(number)),
            data=(address, data_port(number, PROCESSES)),
            fingerprint="",
        )
        for instance, address in ADDRESSES.items()
        for number in range(PROCESSES)
        for node in (f"{instance}.{number}",)
    }


def rules(*routes: Route, probes: Sequence[Route] = ()) -> dict[str, set[Ingress]]:
    found = peer_ingress(routes, handles(), lambda _: Reach(), probes)
    return {region: set(its) for region, its in found.items()}


def from_(node: str, ports: tuple[int, int]) -> Ingress:
    return Ingress(*ports, f"{ADDRESSES[instance_of(node)]}/32")


def test_rules_are_as_clouds_write_them() -> None:
    wide, narrow = Ingress(1, 2, "10.1.2.3/8"), Ingress(1, 2, "10.0.0.0/16")
    other = Ingress(3, 4, "10.0.0.0/16")
    assert normal([wide, narrow, other]) == {Ingress(1, 2, "10.0.0.0/8"), other}


def test_workers_reach_enrolment_and_control_only() -> None:
    assert control_ingress(["198.51.100.0/24"], PROCESSES) == (
        Ingress(7600, 7602, "198.51.100.0/24"),
    )
    assert control_ingress(["198.51.100.0/24"], PROCESSES, 443) == (
        Ingress(443, 443, "198.51.100.0/24"),
    )


def test_data_ports_are_open_to_the_gateways_that_dial_them() -> None:
    relayed = rules(
        Route(0, (f"{A}/0.0", f"{R}/0.0", f"{Z}/0.0"), (8, 8), 1.0),
        Route(1, (f"{A}/0.1", f"{R}/0.1", f"{Z}/0.1"), (8, 8), 1.0),
    )
    assert relayed[R] == {from_(f"{A}/0.0", DATA)}
    # A lead calls the sinks; it sends them nothing itself.
    assert relayed[Z] == {from_(f"{R}/0.0", DATA), from_(f"{A}/0.0", CONTROL)}
    # The two sources of the instance call each other.
    assert relayed[A] == {from_(f"{A}/0.0", CONTROL)}


def test_a_probe_opens_data_ports_only() -> None:
    planned = Route(0, (f"{A}/0.0", f"{R}/0.0", f"{Z}/0.0"), (8, 8), 1.0)
    probes = [
        Route(9, (f"{A}/0.0", f"{Z}/0.0"), (8,), 1.0),
        Route(8, (f"{R}/0.0", f"{Z}/0.0"), (8,), 1.0),
    ]
    before, found = rules(planned), rules(planned, probes=probes)
    assert (found[A], found[R]) == (before[A], before[R])
    # The direct path is measured; a relay is the source of a probe, and calls nobody.
    assert found[Z] - before[Z] == {from_(f"{A}/0.0", (DATA[0], DATA[0]))}


def test_a_peer_has_one_rule_where_its_ports_are_next_to_each_other() -> None:
    direct = rules(
        Route(0, (f"{A}/0.0", f"{Z}/0.0"), (8,), 1.0),
        Route(1, (f"{A}/0.1", f"{Z}/0.1"), (8,), 1.0),
    )
    assert direct[Z] == {from_(f"{A}/0.0", (7601, 7604))}


def test_a_gateway_that_is_not_dialled_stays_closed() -> None:
    found = rules(
        Route(0, (f"{A}/0.0", f"{R}/0.0", f"{Z}/0.0"), (8, 8), 1.0),
        Route(1, (f"{A}/1.0", f"{R}/0.1", f"{Z}/0.1"), (8, 8), 1.0),
    )
    assert found[R] == {from_(f"{A}/0.0", (7603, 7603)), from_(f"{A}/1.0", (7604, 7604))}
    assert from_(f"{A}/1.0", (7601, 7601)) in found[A]


def test_a_downstream_gateway_that_dials_reaches_the_upstream_one() -> None:
    route = Route(0, (f"{A}/0.0", f"{R}/0.0", f"{Z}/0.0"), (8, 8), 1.0, dialed_by_downstream=(1,))
    found = rules(route)
    assert found[R] == {from_(f"{A}/0.0", (7603, 7603)), from_(f"{Z}/0.0", (7603, 7603))}
    assert found[Z] == {from_(f"{A}/0.0", (7601, 7601))}


def test_within_one_network_the_internal_address_of_a_peer_is_let_in() -> None:
    far = "gcp:asia-east1"
    nodes = {
        node: GatewayHandle(
            node,
            node.partition("/")[0],
            ("192.0.2.9", 7601),
            ("192.0.2.9", 7602),
            "",
            {INTERNAL_HOST: host} if host else {},
        )
        for node, host in ((f"{A}/0", ""), (f"{R}/0", "10.0.0.1"), (f"{far}/0", "10.0.0.2"))
    }
    route = Route(0, tuple(nodes), (8, 8), 1.0)
    found = peer_ingress([route], nodes, lambda _: Reach())
    assert found[R] == (Ingress(7602, 7602, "192.0.2.9/32"),)
    assert Ingress(7602, 7602, "10.0.0.1/32") in found[far]


BEHIND_NAT = Reach("one", False, ("203.0.113.7/32", "203.0.113.8/32"))


@pytest.mark.parametrize(
    ("its", "seen"),
    [
        (Reach(), BEHIND_NAT.egress_cidrs),
        (Reach("two", True, ("198.51.100.1/32",)), BEHIND_NAT.egress_cidrs),
        # Pods of one network dial each other by their addresses.
        (Reach("one", False), ("10.0.0.7/32",)),
        # Those that have a load balancer are dialed there.
        (Reach("one", True, ("198.51.100.1/32",)), BEHIND_NAT.egress_cidrs),
    ],
)
def test_a_gateway_behind_nat_is_let_in_by_the_addresses_that_the_other_one_sees(
    its: Reach, seen: Sequence[str]
) -> None:
    nodes = {
        f"{A}/0": GatewayHandle(f"{A}/0", A, ("10.0.0.7", 7601), ("10.0.0.7", 7602), ""),
        f"{Z}/0": GatewayHandle(f"{Z}/0", Z, ("192.0.2.9", 7601), ("192.0.2.9", 7602), ""),
    }
    route = Route(0, tuple(nodes), (8,), 1.0)
    found = peer_ingress([route], nodes, {A: BEHIND_NAT, Z: its}.__getitem__)
    assert found[Z] == tuple(Ingress(7601, 7602, cidr) for cidr in seen)
