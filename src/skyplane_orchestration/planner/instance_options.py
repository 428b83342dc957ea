"""Instance types that a region may use, and their quotas.

A region has one type in a plan. So both quotas become one bound per option: the account's instance
quota, and its vCPU quota, N <= quota // vcpus.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.gateway_speed import RELAY, SINK, SOURCE, Role
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.constraint_names import INSTANCE_QUOTA, VCPU_QUOTA

#: Connections over which a grid's rates were measured (the paper's LIMIT_conn in 4b).
MEASURED_CONNECTIONS: Final = 64


class Quota(NamedTuple):
    """The quota that limits a type in a region, and the number of instances that it allows.

    `owner` names the account's quota where a provisioner has read it; else it is empty.
    """

    name: str
    instances: int
    owner: str = ""


def quota_of(grid: Grid, tag: str, kind: InstanceType, limits: Limits) -> Quota:
    """The most instances of this type in one region, by instance quota and by vCPU quota.

    Each is the smaller of the job's and the account's (from the grid). The type's own limit counts
    where neither gives a number of instances.
    """
    given = [
        count for count in (limits.instance_limit, grid.instance_quota(tag)) if count is not None
    ]
    by_count = min(given, default=kind.instance_limit)
    most = by_count
    for vcpus in (limits.vcpu_quota.get(kind.cloud), grid.vcpu_quota(tag, kind.name)):
        most = most if vcpus is None else min(most, vcpus // kind.vcpus)
    name = VCPU_QUOTA if most < by_count else INSTANCE_QUOTA
    return Quota(name, most, _owner(grid, tag, kind, most, is_vcpu=name == VCPU_QUOTA))


def _owner(grid: Grid, tag: str, kind: InstanceType, most: int, *, is_vcpu: bool) -> str:
    """The account's quota that allows no more than `most` instances; empty if none does."""
    for quota in grid.account.get(tag, ()):
        if not quota.limits(kind.name):
            continue
        vcpus = quota.free_vcpus
        by_vcpus = None if vcpus is None else vcpus // kind.vcpus
        if (by_vcpus if is_vcpu else quota.instances) == most:
            return quota.name
    return ""


def read_limit_gbps(grid: Grid, src: str, limits: Limits) -> float | None:
    """The rate of the source's store; None if unknown. The job's figure takes precedence."""
    return limits.source_read_gbps or grid.storage_limits(src)[0]


def write_limit_gbps(grid: Grid, dst: str, limits: Limits) -> float | None:
    """The rate of a destination's store; None if unknown. The job's figure takes precedence."""
    return limits.destination_write_gbps or grid.storage_limits(dst)[1]


def roles_in(
    place: Hashable, src: Hashable, destinations: Collection[Hashable]
) -> tuple[Role, ...]:
    """What the gateways of a region do with each byte, between these ends.

    One of several destinations may forward what it writes.
    """
    if place == src:
        return (SOURCE,)
    if place in destinations:
        return (SINK,) if len(destinations) == 1 else (SINK, RELAY)
    return (RELAY,)


def chosen_type(grid: Grid, tag: str, limits: Limits, roles: Sequence[Role] = ()) -> InstanceType:
    """The type that the job names for the region's cloud, else the type of a plan there, priced.

    That is the cheapest type that is as good as the grid's first of that cloud for which the quotas
    allow an instance. The quotas must allow as many of it.

    Args:
        roles: what its gateways do; its rates are those of `InstanceType.carrying`. Without any,
            those of the network.

    Raises GridInvalid for a cloud or a type that the grid does not have.
    """
    cloud = tag.partition(":")[0]
    default = grid.instance_type(cloud, limits.instance_types.get(cloud)).carrying(*roles)
    if cloud in limits.instance_types:
        return grid.priced(tag, default)
    kinds = [kind.carrying(*roles) for kind in grid.types if kind.cloud == cloud]
    quotas = {kind: quota_of(grid, tag, kind, limits).instances for kind in kinds}
    first = next((kind for kind in quotas if quotas[kind]), default)
    no_worse = [
        kind
        for kind in quotas
        if kind.egress_gbps >= first.egress_gbps
        and kind.ingress_gbps >= first.ingress_gbps
        and kind.connection_limit >= first.connection_limit
    ]
    cheapest = min(
        (kind for kind in no_worse if quotas[kind] >= quotas[first]),
        key=lambda kind: kind.usd_per_hour,
    )
    return grid.priced(tag, cheapest)


def types_by_cloud(
    grid: Grid, clouds: Sequence[str], chosen: Mapping[str, str]
) -> dict[str, tuple[InstanceType, ...]]:
    """The types that each cloud's regions may use: the named one, or all types of the grid.

    Raises GridInvalid for a cloud or a type that the grid does not have.
    """
    found: dict[str, tuple[InstanceType, ...]] = {}
    for cloud in dict.fromkeys(clouds):
        default = grid.instance_type(cloud, chosen.get(cloud))
        every = tuple(kind for kind in grid.types if kind.cloud == cloud)
        found[cloud] = (default,) if cloud in chosen else every
    return found
