"""Instance types that are never in an optimum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skyplane_orchestration.grids import InstanceType
from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.instance_options import MEASURED_CONNECTIONS


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
