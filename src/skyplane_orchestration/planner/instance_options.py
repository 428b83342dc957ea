"""Instance types that a region may use, their quotas, and types that are never in an optimum.

A region has one type in a plan. So both quotas become one bound per option: the account's instance
quota, and its vCPU quota, N <= quota // vcpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.constraint_names import INSTANCE_QUOTA, VCPU_QUOTA

#: Connections over which a grid's rates were measured (the paper's LIMIT_conn in 4b).
MEASURED_CONNECTIONS: Final = 64


class Quota(NamedTuple):
    """The quota that limits a type in a region, and the number of instances that it allows."""

    name: str
    instances: int


def quota_of(grid: Grid, tag: str, kind: InstanceType, limits: Limits) -> Quota:
    """The most instances of this type in one region, by instance quota and by vCPU quota.

    The vCPU quota is the smaller of the job's and the account's (from the grid).
    """
    by_count = kind.instance_limit if limits.instance_limit is None else limits.instance_limit
    most = by_count
    for vcpus in (limits.vcpu_quota.get(kind.cloud), grid.vcpu_quota(tag)):
        most = most if vcpus is None else min(most, vcpus // kind.vcpus)
    return Quota(VCPU_QUOTA if most < by_count else INSTANCE_QUOTA, most)


def read_limit_gbps(grid: Grid, src: str, limits: Limits) -> float | None:
    """The rate of the source's store; None if unknown. The job's figure takes precedence."""
    return limits.source_read_gbps or grid.storage_limits(src)[0]


def write_limit_gbps(grid: Grid, dst: str, limits: Limits) -> float | None:
    """The rate of a destination's store; None if unknown. The job's figure takes precedence."""
    return limits.destination_write_gbps or grid.storage_limits(dst)[1]


def chosen_type(grid: Grid, tag: str, limits: Limits) -> InstanceType:
    """The type that the job names for the region's cloud, else the type of a plan there.

    That is the cheapest type that is as good as the grid's first of that cloud for which the quotas
    allow an instance. The quotas must allow as many of it.

    Raises GridInvalid for a cloud or a type that the grid does not have.
    """
    cloud = tag.partition(":")[0]
    default = grid.instance_type(cloud, limits.instance_types.get(cloud))
    if cloud in limits.instance_types:
        return default
    quotas = {
        kind: quota_of(grid, tag, kind, limits).instances
        for kind in grid.types
        if kind.cloud == cloud
    }
    first = next((kind for kind in quotas if quotas[kind]), default)
    no_worse = [kind for kind in quotas if _does_as_much(kind, first)]
    return min(
        (kind for kind in no_worse if quotas[kind] >= quotas[first]),
        key=lambda kind: kind.usd_per_hour,
    )


def _does_as_much(kind: InstanceType, other: InstanceType) -> bool:
    return (
        kind.egress_gbps >= other.egress_gbps
        and kind.ingress_gbps >= other.ingress_gbps
        and kind.connection_limit >= other.connection_limit
    )


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
    carry on the region's fastest edge, by (4b) with (4h) and (4i).

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
    rate = np.where(
        as_source[:, None], outward, np.where(as_sink[:, None], inward, np.minimum(inward, outward))
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
