"""The problem with one source and several destinations, as arrays over region pairs.

Relays copy bytes: an edge carries each byte at most once, for all destinations behind it. So the
unit of flow is not a path but a distribution tree (an arborescence from the source that reaches
every destination) with a rate x_T:

    sum x_T = G        F_uv = sum of x_T over the trees with the edge uv

(4b) and (4f) to (4j) hold for F as with one destination. A destination that forwards pays with its
own egress, connections and instances. With one destination trees are paths, and the model is the
paper's.

Units are those of `planner.problem`: Gbit/s, USD per Gbit, USD per instance-second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.arrays import Floats, Ints, Mask
from skyplane_orchestration.model.job import ANY_REGION, NO_LIMITS, Limits, Policy
from skyplane_orchestration.planner.constraint_names import STORAGE_READ, STORAGE_WRITE
from skyplane_orchestration.planner.instance_options import (
    MEASURED_CONNECTIONS,
    chosen_type,
    quota_of,
    read_limit_gbps,
    write_limit_gbps,
)
from skyplane_orchestration.planner.problem import (
    refuse_excluded_ends,
    regions_that_may_serve,
    usable_edges,
)
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit, usd_per_hour_to_usd_per_s

#: The search looks at every subset of the destinations, so their number is limited.
MOST_DESTINATIONS = 8


@dataclass(frozen=True, slots=True, eq=False)
class MulticastProblem:
    """One source, k destinations, a throughput floor, and the regions that may relay.

    Attributes:
        tags, types: (V,) region tags and the instance type of each; `src` and `destinations` (k,)
            index them.
        connections_per_gbps: (V, V) connections per Gbit/s, 64 / l_uv; infinite where there is no
            edge, into the source, and on the diagonal.
        usd_per_gbit: (V, V) egress price.
        egress_gbps, ingress_gbps, connection_limit, usd_per_s, quota: (V,) per region.
        quota_names: (V,) whether that is the quota of instances or of vCPUs.
        store_gbps: `storage_read TAG` or `storage_write TAG` -> the limit of that store.
        goal_gbps, most_gbps: range of the throughput.
        max_relays: most relay regions, or None.
    """

    tags: tuple[str, ...]
    types: tuple[InstanceType, ...]
    src: int
    destinations: Ints
    connections_per_gbps: Floats
    usd_per_gbit: Floats
    egress_gbps: Floats
    ingress_gbps: Floats
    connection_limit: Floats
    usd_per_s: Floats
    quota: Floats
    quota_names: tuple[str, ...]
    store_gbps: Mapping[str, float]
    goal_gbps: float
    most_gbps: float
    max_relays: int | None = None

    @property
    def region_count(self) -> int:
        return len(self.tags)

    @property
    def usable(self) -> Mask:
        """(V, V) True where there is an edge."""
        return np.isfinite(self.connections_per_gbps)

    @property
    def relays(self) -> Mask:
        """(V,) True for every region that is neither source nor destination."""
        mask = np.ones(self.region_count, dtype=bool)
        mask[self.src] = False
        mask[self.destinations] = False
        return mask

    @property
    def capacity(self) -> Floats:
        """(4, V) limits of one instance: ingress, egress, connections in, out (4f to 4i)."""
        return np.array(
            [self.ingress_gbps, self.egress_gbps, self.connection_limit, self.connection_limit]
        )

    def with_goal(self, goal_gbps: float, most_gbps: float) -> MulticastProblem:
        """The same problem for another range of throughput."""
        return replace(self, goal_gbps=goal_gbps, most_gbps=most_gbps)

    def with_overhead(self, factor: Floats) -> MulticastProblem:
        """The same problem with each region's instance price times `factor` (V,)."""
        return replace(self, usd_per_s=self.usd_per_s * factor)

    def with_instances(self, count: Floats) -> MulticastProblem:
        """The same problem with at most this many instances per region (V,)."""
        closed = count < 1
        connections = self.connections_per_gbps.copy()
        connections[closed, :] = np.inf
        connections[:, closed] = np.inf
        return replace(self, quota=count, connections_per_gbps=connections)


def build_multicast_problem(
    grid: Grid,
    src: str,
    destinations: Sequence[str],
    *,
    goal_gbps: float,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> MulticastProblem:
    """The problem of one source and several destinations on one grid.

    Each region has one instance type (`chosen_type`). The stores at the ends limit the rate.

    Raises as `require_ends`, and PlanInfeasible when the policy excludes an end.
    """
    require_ends(grid, src, destinations)
    ends = [grid.index_of(tag) for tag in (src, *destinations)]
    refuse_excluded_ends((src, *destinations), policy)
    kept = regions_that_may_serve(grid, ends, limits, policy)
    tags = tuple(grid.tags[number] for number in kept)
    types = [chosen_type(grid, tag, limits) for tag in tags]
    quotas = [quota_of(grid, tag, kind, limits) for tag, kind in zip(tags, types, strict=True)]
    quota = np.array([float(one.instances) for one in quotas])
    position = [kept.index(number) for number in ends]
    rate = grid.throughput_gbps[np.ix_(kept, kept)] * (1 - limits.safety_margin)
    connections = _connections_per_gbps(rate, quota > 0, position, may_chain=limits.max_relays != 1)
    egress = np.array([kind.egress_gbps for kind in types])
    ingress = np.array([kind.ingress_gbps for kind in types])
    stores = _store_caps(grid, src, destinations, limits)
    caps = [
        float((egress * quota)[position[0]]),
        *(float((ingress * quota)[end]) for end in position[1:]),
        *stores.values(),
    ]
    return MulticastProblem(
        tags=tags,
        types=tuple(types),
        src=position[0],
        destinations=np.array(position[1:], dtype=np.int64),
        connections_per_gbps=connections,
        usd_per_gbit=usd_per_gb_to_usd_per_gbit(1.0) * grid.usd_per_gb[np.ix_(kept, kept)],
        egress_gbps=egress,
        ingress_gbps=ingress,
        connection_limit=np.array([float(kind.connection_limit) for kind in types]),
        usd_per_s=np.array([usd_per_hour_to_usd_per_s(kind.usd_per_hour) for kind in types]),
        quota=quota,
        quota_names=tuple(one.name for one in quotas),
        store_gbps=stores,
        goal_gbps=goal_gbps,
        most_gbps=min(caps),
        max_relays=limits.max_relays,
    )


def _connections_per_gbps(
    rate: Floats, has_instances: Mask, ends: Sequence[int], *, may_chain: bool
) -> Floats:
    """(V, V) connections per Gbit/s, infinite where there is no edge; see `usable_edges`."""
    usable = usable_edges(rate, ends, may_chain=may_chain)
    usable &= has_instances[:, None] & has_instances[None, :]
    connections = np.full(rate.shape, np.inf)
    connections[usable] = MEASURED_CONNECTIONS / rate[usable]
    return connections


def _store_caps(
    grid: Grid, src: str, destinations: Sequence[str], limits: Limits
) -> dict[str, float]:
    """The limits of the stores at the ends."""
    read = read_limit_gbps(grid, src, limits)
    found = {} if read is None else {f"{STORAGE_READ} {src}": read}
    for tag in destinations:
        write = write_limit_gbps(grid, tag, limits)
        if write is not None:
            found[f"{STORAGE_WRITE} {tag}"] = write
    return found


def require_ends(grid: Grid, src: str, destinations: Sequence[str]) -> None:
    """Raises UnknownRegion, and ConfigurationInvalid for bad destinations.

    Destinations are bad if there are none or too many, or if they repeat or include the source.
    """
    for tag in (src, *destinations):
        grid.index_of(tag)
    if not 1 <= len(destinations) <= MOST_DESTINATIONS:
        raise ConfigurationInvalid(
            f"give 1 to {MOST_DESTINATIONS} destinations, not {len(destinations)}"
        )
    twice = [tag for tag in dict.fromkeys(destinations) if destinations.count(tag) > 1]
    if twice:
        raise ConfigurationInvalid(f"destination {', '.join(twice)} is given more than once")
    if src in destinations:
        raise ConfigurationInvalid(f"{src} is the source and cannot be a destination as well")
