"""Which addresses reach which ports of a fleet's instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from skyplane_gateway.config import Route
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.instances.cloud import (
    ENROLMENT_PORT,
    Ingress,
    control_port,
    data_port,
)


def control_ingress(cidrs: Sequence[str], processes: int) -> tuple[Ingress, ...]:
    """What workers may reach: enrolment and the control APIs of all gateways.

    One rule per range: the data listeners between the ports accept no worker, since it has no
    hello key.
    """
    last = control_port(processes - 1)
    return tuple(Ingress(ENROLMENT_PORT, last, cidr) for cidr in sorted(set(cidrs)))


def peer_ingress(
    routes: Sequence[Route], handles: Mapping[str, GatewayHandle], processes: int
) -> dict[str, tuple[Ingress, ...]]:
    """Region tag -> what the instances of other gateways may reach there.

    On a route the upstream gateway dials the next one, unless the route says otherwise. A lead
    also calls the control APIs of other sources, and of the sinks. An instance has one rule per
    peer: EC2 allows 60 in a group.
    """
    callers: dict[str, set[str]] = {handle.region: set() for handle in handles.values()}
    sources = {route.nodes[0] for route in routes}
    sinks = {route.nodes[-1] for route in routes}
    for route in routes:
        for number, (upstream, downstream) in enumerate(pairwise(route.nodes)):
            if number in route.dialed_by_downstream:
                callers[handles[upstream].region].add(downstream)
            else:
                callers[handles[downstream].region].add(upstream)
    for node in sources | sinks:
        callers[handles[node].region] |= sources - {node}
    last = data_port(processes - 1)
    return {
        region: tuple(
            sorted(
                {Ingress(control_port(0), last, f"{handles[node].data[0]}/32") for node in nodes}
            )
        )
        for region, nodes in callers.items()
    }
