"""Which addresses reach which ports of a fleet's instances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from itertools import pairwise

from skyplane_gateway.config import Route
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.instances.cloud import ENROLMENT_PORT, Ingress, control_port


def control_ingress(cidrs: Sequence[str], processes: int) -> tuple[Ingress, ...]:
    """What workers may reach: enrolment and the control APIs of all gateways, and no data."""
    last = control_port(processes - 1)
    return tuple(Ingress(ENROLMENT_PORT, last, cidr) for cidr in sorted(set(cidrs)))


def normal(ingress: Iterable[Ingress]) -> frozenset[Ingress]:
    """Rules with sources as clouds write them: with a prefix, and without bits behind it.

    Raises ConfigurationInvalid: a source is no range of addresses.
    """
    rules = set()
    for rule in ingress:
        try:
            source = ip_network(rule.source_cidr, strict=False)
        except ValueError as error:
            raise ConfigurationInvalid(
                f"{rule.source_cidr!r} is no range of addresses; write one as 203.0.113.0/24"
            ) from error
        rules.add(Ingress(rule.first_port, rule.last_port, str(source)))
    return frozenset(rules)


def peer_ingress(
    routes: Sequence[Route], handles: Mapping[str, GatewayHandle]
) -> dict[str, tuple[Ingress, ...]]:
    """Region tag -> what the instances of other gateways may reach there.

    On a route the upstream gateway dials the data port of the next one, unless the route says
    otherwise. Any source may become the lead, and a lead calls the control APIs of other sources
    and of the sinks. The instances of a region share a firewall, so a peer of one reaches the same
    ports of all. A peer mostly has one rule: EC2 allows 60 in a group.
    """
    ports: dict[str, dict[str, set[int]]] = {
        handle.region: defaultdict(set) for handle in handles.values()
    }
    for dialer, dialed in _dials(routes):
        handle = handles[dialed]
        ports[handle.region][handles[dialer].data[0]].add(handle.data[1])
    sources = {route.nodes[0] for route in routes}
    sinks = {route.nodes[-1] for route in routes}
    for node in sources | sinks:
        handle = handles[node]
        for source in sources - {node}:
            ports[handle.region][handles[source].data[0]].add(handle.control[1])
    return {
        region: tuple(
            sorted(
                Ingress(first, last, f"{address}/32")
                for address, numbers in callers.items()
                for first, last in _ranges(numbers)
            )
        )
        for region, callers in ports.items()
    }


def _dials(routes: Sequence[Route]) -> Iterator[tuple[str, str]]:
    """(the node that dials, the one that it dials) of all hops."""
    for route in routes:
        for number, (upstream, downstream) in enumerate(pairwise(route.nodes)):
            if number in route.dialed_by_downstream:
                yield downstream, upstream
            else:
                yield upstream, downstream


def _ranges(ports: Collection[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of ports without a gap."""
    for first in sorted(port for port in ports if port - 1 not in ports):
        last = first
        while last + 1 in ports:
            last += 1
        yield first, last
