"""Which addresses reach which ports of a fleet's instances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from itertools import pairwise
from typing import Final, TypeAlias

from skyplane_gateway.config import Route
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.fleet.machines import (
    ENROLMENT_PORT,
    Ingress,
    Reach,
    control_port,
)
from skyplane_orchestration.provision.provisioner import Finding

_Network: TypeAlias = IPv4Network | IPv6Network

#: The widest range that one owner has.
_SHORTEST_PREFIX: Final = 8


def joined_ranges(cidrs: Iterable[str]) -> tuple[str, ...]:
    """The fewest ranges that hold the same addresses, those of IPv4 first.

    Azure refuses a rule with ranges that overlap (`OverlappingSubnetsNotPermittedInSecurityRule`).

    Raises ConfigurationInvalid: one is no range of addresses.
    """
    found = [_network(cidr) for cidr in cidrs]
    v4 = (one for one in found if isinstance(one, IPv4Network))
    v6 = (one for one in found if isinstance(one, IPv6Network))
    return tuple(str(one) for one in (*collapse_addresses(v4), *collapse_addresses(v6)))


def control_ingress(
    cidrs: Sequence[str], processes: int, worker_port: int = ENROLMENT_PORT
) -> tuple[Ingress, ...]:
    """What workers may reach: enrolment and the control APIs of all gateways, and no data.

    Instances have no address of IPv6, so nothing is opened to one.

    Args:
        worker_port: the fleet's `control_port`; at 443 an instance forwards to the others.
    """
    last = control_port(processes - 1) if worker_port == ENROLMENT_PORT else worker_port
    return tuple(Ingress(worker_port, last, cidr) for cidr in cidrs if ":" not in cidr)


def odd_ranges(cidrs: Sequence[str] | None) -> tuple[Finding, ...]:
    """Warnings for ranges that are those of nobody's workers, and for those of no use."""
    cidrs = cidrs or ()
    v6 = [cidr for cidr in cidrs if ":" in cidr]
    v4 = [cidr for cidr in cidrs if cidr not in v6]
    texts = (
        (
            [cidr for cidr in v4 if _network(cidr).prefixlen < _SHORTEST_PREFIX],
            ": most of the internet reaches the control ports of every gateway, and only"
            " certificates protect them; name the addresses of your workers, as 203.0.113.7/32",
        ),
        (v6, ", which opens nothing: instances have addresses of IPv4 only; leave it out"),
    )
    return tuple(
        Finding("control_cidrs", True, f"control_cidrs has {', '.join(found)}{text}", True)
        for found, text in texts
        if found
    )


def normal(ingress: Iterable[Ingress]) -> frozenset[Ingress]:
    """Rules with sources as clouds write them: with a prefix, and without bits behind it.

    A source that another one of the same ports contains is left out.

    Raises ConfigurationInvalid: a source is no range of addresses.
    """
    by_ports: dict[tuple[int, int], set[_Network]] = {}
    for rule in ingress:
        ports = rule.first_port, rule.last_port
        by_ports.setdefault(ports, set()).add(_network(rule.source_cidr, is_strict=False))
    return frozenset(
        Ingress(*ports, str(source))
        for ports, sources in by_ports.items()
        for source in sources
        if not _is_within_another(source, sources)
    )


def by_ports(rules: Iterable[Ingress]) -> dict[tuple[int, int], list[str]]:
    """First and last port -> sources, in order."""
    found: dict[tuple[int, int], list[str]] = {}
    for rule in sorted(rules):
        found.setdefault((rule.first_port, rule.last_port), []).append(rule.source_cidr)
    return found


def _network(cidr: str, *, is_strict: bool = True) -> _Network:
    try:
        return ip_network(cidr, strict=is_strict)
    except ValueError as error:
        raise ConfigurationInvalid(
            f"{cidr!r} is no range of addresses; write {_what_was_meant(cidr)}"
        ) from error


def _what_was_meant(cidr: str) -> str:
    try:
        whole = ip_network(cidr, strict=False)
    except ValueError:
        return "one as 203.0.113.0/24"
    alone = f"{cidr.partition('/')[0]}/{whole.max_prefixlen}"
    return f"{whole}, or {alone} for this address alone"


def _is_within_another(source: _Network, sources: Collection[_Network]) -> bool:
    """Few lengths of prefixes occur, and a fleet may have hundreds of peers."""
    lengths = {one.prefixlen for one in sources if one.prefixlen < source.prefixlen}
    return any(source.supernet(new_prefix=length) in sources for length in lengths)


def peer_ingress(
    routes: Sequence[Route],
    handles: Mapping[str, GatewayHandle],
    reach_of: Callable[[str], Reach],
    probes: Sequence[Route] = (),
) -> dict[str, tuple[Ingress, ...]]:
    """Region tag -> what the instances of other gateways may reach there.

    On a route the upstream gateway dials the data port of the next one, unless the route says
    otherwise. Any source may become the lead, and a lead calls the control APIs of other sources
    and of the sinks. The instances of a region share a firewall, so a peer of one reaches the same
    ports of all. A peer mostly has one rule: EC2 allows 60 in a group.

    Args:
        reach_of: of the gateways of a region tag.
        probes: routes that carry no transfer, so that their sources call nobody.
    """

    def seen_as(dialer: GatewayHandle, other: GatewayHandle, address: str) -> Sequence[str]:
        """The ranges from which a gateway sees the connections of one with this address."""
        own, its = reach_of(dialer.region), reach_of(other.region)
        # Within a network the address stays, unless a load balancer is dialed.
        is_direct = own.network == its.network and not its.is_open
        return (not is_direct and own.egress_cidrs) or (f"{address}/32",)

    ports: dict[str, dict[str, set[int]]] = {
        handle.region: defaultdict(set) for handle in handles.values()
    }
    for dialer, dialed in _dials((*routes, *probes)):
        handle = handles[dialed]
        address = handles[dialer].data_for(handle)[0]
        for cidr in seen_as(handles[dialer], handle, address):
            ports[handle.region][cidr].add(handle.data[1])
    sources = {route.nodes[0] for route in routes}
    sinks = {route.nodes[-1] for route in routes}
    for node in sources | sinks:
        handle = handles[node]
        for source in sources - {node}:
            for cidr in seen_as(handles[source], handle, handles[source].data[0]):
                ports[handle.region][cidr].add(handle.control[1])
    return {
        region: tuple(
            sorted(
                Ingress(first, last, cidr)
                for cidr, numbers in callers.items()
                for first, last in _ranges(numbers)
            )
        )
        for region, callers in ports.items()
    }


def _dials(routes: Sequence[Route]) -> Iterator[tuple[str, str]]:
    """(the node that dials, the one that it dials) of all hops."""
    for route in routes:
        for number, hop in enumerate(pairwise(route.nodes)):
            yield hop[::-1] if number in route.dialed_by_downstream else hop


def _ranges(ports: Collection[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of ports without a gap."""
    for first in sorted(port for port in ports if port - 1 not in ports):
        last = first
        while last + 1 in ports:
            last += 1
        yield first, last
