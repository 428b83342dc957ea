"""A plan, a secret and regions that the tests of provisioners share."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from tests.transfer import samples

from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import (
    InstanceGroup,
    PlanEdge,
    PlanPath,
    TransferPlan,
)
from skyplane_orchestration.provision.control_sessions import open_sessions
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.security.authority import Authority, FleetSecret

SECRET = FleetSecret(b"a fleet secret of the test suite")

A, B, C = "aws:us-east-1", "gcp:us-central1", "azure:westeurope"


def make_plan(
    paths: Sequence[tuple[Sequence[str], float]],
    counts: Mapping[str, int],
    connections: Mapping[tuple[str, str], int] | None = None,
) -> TransferPlan:
    """A plan of the given (regions, flow) paths and instance counts; 64 connections an edge."""
    flows: dict[tuple[str, str], float] = {}
    for regions, flow_gbps in paths:
        for hop in itertools.pairwise(regions):
            flows[hop] = flows.get(hop, 0.0) + flow_gbps
    return replace(
        samples.PLAN,
        src=paths[0][0][0],
        dst=paths[0][0][-1],
        throughput_gbps=sum(flow_gbps for _, flow_gbps in paths),
        instances={region: InstanceGroup("process", count) for region, count in counts.items()},
        edges=tuple(
            PlanEdge(*hop, flow_gbps, 64 if connections is None else connections[hop], 5.0, 0.0)
            for hop, flow_gbps in flows.items()
        ),
        paths=tuple(PlanPath(tuple(regions), flow_gbps) for regions, flow_gbps in paths),
    )


def one_of_each(spec: FleetSpec) -> FleetSpec:
    """The same with one instance in each region."""
    groups = {tag: replace(group, count=1) for tag, group in spec.plan.instances.items()}
    return replace(spec, plan=replace(spec.plan, instances=groups))


def expire_leases(fleet: Fleet, authority: Authority, after_s: float = 0.1) -> None:
    """Let the leases of a fleet's gateways run out soon, in place of a wait for them."""
    sessions = open_sessions(authority, ControlClient)
    with closing(sessions):
        for gateway in fleet.gateways:
            sessions.get(gateway.node, gateway.control).renew(after_s)
