"""What is to be solved: one frozen `PlanProblem`, arrays by region and by edge.

Inside the planner volume is Gbit and prices are USD per Gbit and USD per instance-second,
so that cost per second = flow x price without a factor. V regions, E ordered pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.job import ANY_REGION, NO_LIMITS, Limits, Policy
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit, usd_per_hour_to_usd_per_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Connections over which a grid's rates were measured (the paper's LIMIT_conn in 4b).
MEASURED_CONNECTIONS = 64


@dataclass(frozen=True, slots=True, eq=False)
class PlanProblem:
    """One source, one sink, a throughput floor, and the regions that may help.

    Attributes:
        tags: (V,) region tags; `src` and `dst` index them.
        types: (V,) the instance type of each region.
        tail, head: (E,) region indices; no edge enters the source or leaves the sink,
            because a flow that returns to either only costs.
        capacity_gbps: (E,) l_uv, one instance pair over 64 connections, > 0.
        usd_per_gbit: (E,) egress price.
        egress_gbps, ingress_gbps, connection_limit, usd_per_s, quota: (V,) per region.
        goal_gbps: G, the least throughput.
        most_gbps: the most throughput that is of interest; equal to G for `exactly`.
        max_relays: most relay regions, or None.
    """

    tags: tuple[str, ...]
    types: tuple[InstanceType, ...]
    src: int
    dst: int
    tail: Ints
    head: Ints
    capacity_gbps: Floats
    usd_per_gbit: Floats
    egress_gbps: Floats
    ingress_gbps: Floats
    connection_limit: Floats
    usd_per_s: Floats
    quota: Floats
    goal_gbps: float
    most_gbps: float
    max_relays: int | None = None

    @property
    def region_count(self) -> int:
        return len(self.tags)

    @property
    def edge_count(self) -> int:
        return len(self.tail)

    @property
    def gbps_per_connection(self) -> Floats:
        """(E,) l_uv / L: what one connection carries."""
        per_connection: Floats = self.capacity_gbps / MEASURED_CONNECTIONS
        return per_connection

    @property
    def relays(self) -> Mask:
        """(V,) True for every region that is neither source nor sink."""
        mask = np.ones(self.region_count, dtype=bool)
        mask[[self.src, self.dst]] = False
        return mask

    def with_edges(self, chosen: Mask) -> PlanProblem:
        """The same problem with only the chosen edges (mask over E)."""
        return replace(
            self,
            tail=self.tail[chosen],
            head=self.head[chosen],
            capacity_gbps=self.capacity_gbps[chosen],
            usd_per_gbit=self.usd_per_gbit[chosen],
        )

    def with_regions(self, chosen: Mask) -> PlanProblem:
        """The same problem with only the chosen regions (mask over V) and their edges."""
        number = np.cumsum(chosen) - 1
        inside = self.with_edges(chosen[self.tail] & chosen[self.head])
        kept = np.flatnonzero(chosen)
        return replace(
            inside,
            tags=tuple(self.tags[v] for v in kept),
            types=tuple(self.types[v] for v in kept),
            src=int(number[self.src]),
            dst=int(number[self.dst]),
            tail=number[inside.tail],
            head=number[inside.head],
            egress_gbps=self.egress_gbps[kept],
            ingress_gbps=self.ingress_gbps[kept],
            connection_limit=self.connection_limit[kept],
            usd_per_s=self.usd_per_s[kept],
            quota=self.quota[kept],
        )

    def with_goal(self, goal_gbps: float, most_gbps: float) -> PlanProblem:
        """The same problem for another range of throughput."""
        return replace(self, goal_gbps=goal_gbps, most_gbps=most_gbps)

    def with_overhead(self, factor: float | Floats) -> PlanProblem:
        """The same problem with every instance price times `factor`: one, or (V,) by region.

        Instances that are paid for longer than they move bytes (boot, minimum billing) cost
        `factor` = paid seconds / seconds of transfer as much per second of transfer.
        """
        return replace(self, usd_per_s=self.usd_per_s * factor)


def build_problem(
    grid: Grid,
    src: str,
    dst: str,
    *,
    goal_gbps: float,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> PlanProblem:
    """The problem of one job on one grid; its range of throughput is [G, what fits].

    Raises UnknownRegion for an end that the grid does not have, and PlanInfeasible when
    the policy excludes an end.
    """
    ends = (grid.index_of(src), grid.index_of(dst))
    _refuse_excluded_ends((src, dst), policy.exclude)
    kept = [
        number
        for number, tag in enumerate(grid.tags)
        if number in ends or (limits.max_relays != 0 and may_relay(tag, policy))
    ]
    types = _types_of(grid, [grid.regions[number].cloud for number in kept], limits.instance_types)
    quota = np.array([float(quota_of(kind, limits)) for kind in types])
    local = {number: position for position, number in enumerate(kept)}
    source, sink = local[ends[0]], local[ends[1]]
    rate = grid.throughput_gbps[np.ix_(kept, kept)]
    usable = (rate > 0) & (quota > 0)[:, None] & (quota > 0)[None, :]
    usable[:, source] = False
    usable[sink, :] = False
    np.fill_diagonal(usable, False)
    if limits.max_relays == 1:
        relay = np.array([position not in (source, sink) for position in range(len(kept))])
        usable &= ~(relay[:, None] & relay[None, :])
    tail, head = np.nonzero(usable)
    egress = np.array([kind.egress_gbps for kind in types])
    ingress = np.array([kind.ingress_gbps for kind in types])
    ceiling = min(egress[source] * quota[source], ingress[sink] * quota[sink])
    return PlanProblem(
        tags=tuple(grid.tags[number] for number in kept),
        types=types,
        src=source,
        dst=sink,
        tail=tail.astype(np.int64),
        head=head.astype(np.int64),
        capacity_gbps=rate[tail, head],
        usd_per_gbit=usd_per_gb_to_usd_per_gbit(1.0)
        * grid.usd_per_gb[np.ix_(kept, kept)][tail, head],
        egress_gbps=egress,
        ingress_gbps=ingress,
        connection_limit=np.array([float(kind.connection_limit) for kind in types]),
        usd_per_s=np.array([usd_per_hour_to_usd_per_s(kind.usd_per_hour) for kind in types]),
        quota=quota,
        goal_gbps=goal_gbps,
        most_gbps=max(goal_gbps, float(ceiling)),
        max_relays=limits.max_relays,
    )


def matches(tag: str, globs: Sequence[str]) -> bool:
    """True when one of the globs (`aws:eu-*`, `gcp:*`) matches the region tag."""
    return any(fnmatchcase(tag, glob) for glob in globs)


def quota_of(kind: InstanceType, limits: Limits) -> int:
    """Most instances of this type in one region."""
    return kind.instance_limit if limits.instance_limit is None else limits.instance_limit


def may_relay(tag: str, policy: Policy) -> bool:
    """True for a region through which the policy lets bytes pass."""
    return not matches(tag, policy.exclude) and (not policy.allow or matches(tag, policy.allow))


def _refuse_excluded_ends(ends: Sequence[str], exclude: Sequence[str]) -> None:
    for tag in ends:
        if matches(tag, exclude):
            raise PlanInfeasible(
                f"{tag} is an end of the transfer and excluded; a transfer cannot avoid its ends",
                binding=("policy",),
            )


def _types_of(
    grid: Grid, clouds: Sequence[str], chosen: Mapping[str, str]
) -> tuple[InstanceType, ...]:
    by_cloud = {cloud: grid.instance_type(cloud, chosen.get(cloud)) for cloud in set(clouds)}
    return tuple(by_cloud[cloud] for cloud in clouds)
