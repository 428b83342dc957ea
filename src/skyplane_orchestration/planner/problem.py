"""The problem: one frozen `PlanProblem` with arrays by region, by edge and by option.

Inside the planner volume is Gbit and prices are USD per Gbit and USD per instance-second, so cost
per second = flow x price without a factor. V regions, E ordered pairs, K options. An option is one
instance type in one region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.arrays import Floats, Ints, Mask
from skyplane_orchestration.grids.gateway_speed import RELAY, SINK, SOURCE
from skyplane_orchestration.grids.promised import promised_shares
from skyplane_orchestration.model.job import ANY_REGION, NO_LIMITS, Limits, Policy
from skyplane_orchestration.planner.constraint_names import POLICY
from skyplane_orchestration.planner.instance_options import (
    MEASURED_CONNECTIONS,
    chosen_type,
    quota_of,
    read_limit_gbps,
    roles_in,
    types_by_cloud,
    write_limit_gbps,
)
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.planner.pricing.other_items import OtherItems
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit, usd_per_hour_to_usd_per_s


@dataclass(frozen=True, slots=True, eq=False)
class PlanProblem:
    """One source, one or several destinations, a throughput floor, and regions that may relay.

    Attributes:
        tags: (V,) region tags; `src` and `destinations` index them.
        types: (K,) the instance type of each option.
        option_region: (K,) the region of each option, ascending.
        tail, head: (E,) region indices. No edge enters the source or leaves the only destination: a
            flow that returns to either only adds cost.
        capacity_gbps: (E,) l_uv, one instance pair over 64 connections, > 0, less the safety
            margin.
        usd_per_gbit: (E,) egress price.
        egress_gbps, ingress_gbps, connection_limit, usd_per_s: (K,) of one instance.
        quota: (K,) most instances, > 0, by instance quota and vCPU quota.
        provision_s: (V,) seconds until a gateway responds.
        goal_gbps: G, the least throughput.
        most_gbps: the largest throughput of interest; equal to G for `exactly`.
        max_relays: most relay regions, or None.
        read_gbps, write_gbps: limits of the stores at the source and at the destinations.
        time_usd_per_s: the value of time, which joins the numerator of (4a).
    """

    tags: tuple[str, ...]
    types: tuple[InstanceType, ...]
    option_region: Ints
    src: int
    destinations: tuple[int, ...]
    tail: Ints
    head: Ints
    capacity_gbps: Floats
    usd_per_gbit: Floats
    egress_gbps: Floats
    ingress_gbps: Floats
    connection_limit: Floats
    usd_per_s: Floats
    quota: Floats
    provision_s: Floats
    goal_gbps: float
    most_gbps: float
    max_relays: int | None = None
    read_gbps: float = np.inf
    write_gbps: float = np.inf
    time_usd_per_s: float = 0.0

    @property
    def dst(self) -> int:
        """The only destination."""
        return self.destinations[0]

    @property
    def ends(self) -> tuple[int, ...]:
        return self.src, *self.destinations

    @property
    def region_count(self) -> int:
        return len(self.tags)

    @property
    def edge_count(self) -> int:
        return len(self.tail)

    @property
    def option_count(self) -> int:
        return len(self.types)

    @property
    def gbps_per_connection(self) -> Floats:
        """(E,) l_uv / L: what one connection carries."""
        per_connection: Floats = self.capacity_gbps / MEASURED_CONNECTIONS
        return per_connection

    @property
    def relays(self) -> Mask:
        """(V,) True for every region that is neither source nor destination."""
        mask = np.ones(self.region_count, dtype=bool)
        mask[list(self.ends)] = False
        return mask

    @property
    def capacity(self) -> Floats:
        """(4, K) limits of one instance, in the order of `REGION_LIMITS`."""
        return np.array(
            [self.ingress_gbps, self.egress_gbps, self.connection_limit, self.connection_limit]
        )

    @property
    def is_choice(self) -> Mask:
        """(K,) True for options of regions that have several."""
        count = np.bincount(self.option_region, minlength=self.region_count)
        mask: Mask = count[self.option_region] > 1
        return mask

    def by_edge(self, values: Floats) -> dict[tuple[str, str], float]:
        """Values (E,) by the region tags of their edges."""
        ends = zip(self.tail, self.head, strict=True)
        edges = ((self.tags[tail], self.tags[head]) for tail, head in ends)
        return dict(zip(edges, values.tolist(), strict=True))

    def with_edges(self, chosen: Mask) -> PlanProblem:
        """The same problem with the chosen edges only (mask over E)."""
        return replace(
            self,
            tail=self.tail[chosen],
            head=self.head[chosen],
            capacity_gbps=self.capacity_gbps[chosen],
            usd_per_gbit=self.usd_per_gbit[chosen],
        )

    def with_regions(self, chosen: Mask) -> PlanProblem:
        """The same problem with the chosen regions only (mask over V) and their edges."""
        number = np.cumsum(chosen) - 1
        inside = self.with_edges(chosen[self.tail] & chosen[self.head])
        kept = np.flatnonzero(chosen[self.option_region])
        return replace(
            inside,
            tags=tuple(self.tags[v] for v in np.flatnonzero(chosen)),
            types=tuple(self.types[k] for k in kept),
            option_region=number[self.option_region[kept]],
            src=int(number[self.src]),
            destinations=tuple(number[list(self.destinations)].tolist()),
            tail=number[inside.tail],
            head=number[inside.head],
            egress_gbps=self.egress_gbps[kept],
            ingress_gbps=self.ingress_gbps[kept],
            connection_limit=self.connection_limit[kept],
            usd_per_s=self.usd_per_s[kept],
            quota=self.quota[kept],
            provision_s=self.provision_s[chosen],
        )

    def with_goal(self, goal_gbps: float, most_gbps: float) -> PlanProblem:
        """The same problem for another range of throughput."""
        return replace(self, goal_gbps=goal_gbps, most_gbps=most_gbps)

    def with_overhead(self, factor: float | Floats) -> PlanProblem:
        """The same problem with every instance price times `factor`: one, or (K,) by option.

        `factor` = billed seconds / seconds of transfer. It is above 1 because of provisioning time
        and minimum billing.
        """
        return replace(self, usd_per_s=self.usd_per_s * factor)

    def with_bill(self, other: OtherItems) -> PlanProblem:
        """The same problem with what comes with bytes and instances in its prices.

        These are the prices of totals; those of (4a) are without it.
        """
        beside = [usd_per_hour_to_usd_per_s(other.beside(kind.cloud)) for kind in self.types]
        return replace(
            self,
            usd_per_gbit=self.usd_per_gbit * (1 + other.packet_headers),
            usd_per_s=self.usd_per_s + np.array(beside),
        )


def build_problem(
    grid: Grid,
    src: str,
    *destinations: str,
    goal_gbps: float,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
    has_choice: bool = True,
    confidence: float | None = None,
) -> PlanProblem:
    """The problem of one job on one grid, with throughput between G and what the ends allow.

    Args:
        has_choice: several options per region; False for the type `chosen_type` alone.
        confidence: of the rates; None for expected rates.

    Raises UnknownRegion for an end that the grid does not have, GridInvalid for an unknown instance
    type, and PlanInfeasible when the policy excludes an end.
    """
    numbers = [grid.index_of(tag) for tag in (src, *destinations)]
    for tag in (src, *destinations):
        if policy.excludes(tag):
            raise PlanInfeasible(
                f"the policy excludes {tag}, which is an end; a transfer cannot avoid its ends",
                binding=(POLICY,),
            )
    kept = [
        number
        for number, tag in enumerate(grid.tags)
        if number in numbers or (limits.max_relays != 0 and may_relay(grid, policy, tag))
    ]
    tags = tuple(grid.tags[number] for number in kept)
    ends = [kept.index(number) for number in numbers]
    rate = grid.throughput_gbps[np.ix_(kept, kept)] * (1 - limits.safety_margin)
    if confidence is not None:
        rate = rate * promised_shares(grid, confidence)[np.ix_(kept, kept)]
    usable = _usable_edges(rate, ends, may_chain=limits.max_relays != 1)
    if has_choice:
        options = _undominated_options(grid, tags, limits, rate * usable, ends)
    else:
        # The chosen type of each region whose quotas allow an instance of it.
        kinds = [
            chosen_type(grid, tag, limits, roles_in(region, ends[0], ends[1:]))
            for region, tag in enumerate(tags)
        ]
        quotas = [
            quota_of(grid, tag, kind, limits).instances
            for tag, kind in zip(tags, kinds, strict=True)
        ]
        options = [one for one in zip(range(len(tags)), kinds, quotas, strict=True) if one[2] > 0]
    types = tuple(kind for _, kind, _ in options)
    option_region = np.array([region for region, _, _ in options], dtype=np.int64)
    quota = np.array([float(most) for _, _, most in options])
    has_option = np.bincount(option_region, minlength=len(tags)) > 0
    tail, head = np.nonzero(usable & has_option[:, None] & has_option[None, :])
    egress = np.array([kind.egress_gbps for kind in types])
    ingress = np.array([kind.ingress_gbps for kind in types])
    read = read_limit_gbps(grid, src, limits) or np.inf
    write = min(write_limit_gbps(grid, tag, limits) or np.inf for tag in destinations)
    most_out = float((egress * quota)[option_region == ends[0]].max(initial=0.0))
    most_in = [float((ingress * quota)[option_region == end].max(initial=0.0)) for end in ends[1:]]
    prices = usd_per_gb_to_usd_per_gbit(1.0) * grid.usd_per_gb[np.ix_(kept, kept)]
    return PlanProblem(
        tags=tags,
        types=types,
        option_region=option_region,
        src=ends[0],
        destinations=tuple(ends[1:]),
        tail=tail.astype(np.int64),
        head=head.astype(np.int64),
        capacity_gbps=rate[tail, head],
        usd_per_gbit=prices[tail, head],
        egress_gbps=egress,
        ingress_gbps=ingress,
        connection_limit=np.array([float(kind.connection_limit) for kind in types]),
        usd_per_s=np.array([usd_per_hour_to_usd_per_s(kind.usd_per_hour) for kind in types]),
        quota=quota,
        provision_s=np.array(
            [instance_billing.provision_s((tag,), grid.provision_s) for tag in tags]
        ),
        goal_gbps=goal_gbps,
        most_gbps=max(goal_gbps, min(most_out, *most_in, read, write)),
        max_relays=limits.max_relays,
        read_gbps=read,
        write_gbps=write,
    )


def may_relay(grid: Grid, policy: Policy, tag: str) -> bool:
    """Whether a region may be a relay: one that an account may lack only if the policy allows it
    by name."""
    return policy.may_relay(tag) and (bool(policy.allow_regions) or not grid.is_on_request(tag))


def _usable_edges(rate: Floats, ends: Sequence[int], *, may_chain: bool) -> Mask:
    """(V, V) pairs that may carry flow; `may_chain`: from relays to relays."""
    usable: Mask = rate > 0
    usable[:, ends[0]] = False
    if len(ends) == 2:
        usable[ends[1], :] = False
    np.fill_diagonal(usable, False)
    if not may_chain:
        relay = np.ones(len(rate), dtype=bool)
        relay[list(ends)] = False
        usable &= ~(relay[:, None] & relay[None, :])
    return usable


#: An option: its region, its type and its quota.
_Option = tuple[int, InstanceType, int]


def _undominated_options(
    grid: Grid, tags: Sequence[str], limits: Limits, rate: Floats, ends: Sequence[int]
) -> list[_Option]:
    clouds = np.array([tag.partition(":")[0] for tag in tags])
    most_in, most_out = rate.max(axis=0, initial=0.0), rate.max(axis=1, initial=0.0)
    found: list[_Option] = []
    for cloud, kinds in types_by_cloud(grid, clouds.tolist(), limits.instance_types).items():
        here = np.flatnonzero(clouds == cloud)
        quota = np.array(
            [
                [quota_of(grid, tags[v], kind, limits).instances for kind in kinds]
                for v in here.tolist()
            ]
        )
        kept = undominated(
            kinds,
            quota.astype(np.float64),
            most_in[here],
            most_out[here],
            as_source=here == ends[0],
            as_sink=here == ends[1],
        )
        for place, kind in np.argwhere(kept):
            number = int(here[place])
            roles = roles_in(number, ends[0], ends[1:])
            priced = grid.priced(tags[number], kinds[kind]).carrying(*roles)
            found.append((number, priced, int(quota[place, kind])))
    return sorted(found, key=lambda option: option[0])


def undominated(
    types: Sequence[InstanceType],
    quota: Floats,
    most_in: Floats,
    most_out: Floats,
    *,
    as_source: Mask,
    as_sink: Mask,
) -> Mask:
    """(R, T) the types of one cloud that may be in an optimum, for each of its R regions.

    A type is dominated if another is not more expensive and not worse in any limit that matters
    there. The ingress of a source and the egress of a sink never matter. A relay forwards what it
    receives, so its smaller limit matters. No limit matters beyond what the type's connections
    carry on the region's fastest edge, by (4b) with (4h) and (4i), or beyond what its processors
    carry there.

    Args:
        quota: (R, T) most instances; a type without any is left out.
        most_in, most_out: (R,) capacity of the fastest edge into and out of each region.
    """
    limit = np.array([float(kind.connection_limit) for kind in types])
    inward = np.minimum(
        np.array([kind.ingress_gbps for kind in types]),
        most_in[:, None] * limit / MEASURED_CONNECTIONS,
    )
    outward = np.minimum(
        np.array([kind.egress_gbps for kind in types]),
        most_out[:, None] * limit / MEASURED_CONNECTIONS,
    )
    source, relay, sink = (
        np.array([kind.processor_gbps(role) for kind in types]) for role in (SOURCE, RELAY, SINK)
    )
    rate = np.where(
        as_source[:, None],
        np.minimum(outward, source),
        np.where(
            as_sink[:, None],
            np.minimum(inward, sink),
            np.minimum(np.minimum(inward, outward), relay),
        ),
    )
    price = np.array([kind.usd_per_hour for kind in types])
    no_worse = (
        (price[:, None] <= price)
        & (limit[:, None] >= limit)
        & (quota[:, :, None] >= quota[:, None, :])
        & (rate[:, :, None] >= rate[:, None, :])
    )
    # Of two equal types the first stays: it is the cloud's default.
    is_first = np.triu(np.ones((len(types), len(types)), dtype=bool), 1)
    beats = no_worse & (~np.swapaxes(no_worse, 1, 2) | is_first)
    kept: Mask = ~beats.any(axis=1) & (quota > 0)
    return kept
