"""The objective that plain numbers name, for interfaces whose arguments are plain."""

from __future__ import annotations

from inspect import signature
from typing import Final

from skyplane_gateway.common.errors import naming
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    Deadline,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)


def chosen_objective(
    *,
    min_throughput_gbps: float | None = None,
    exactly: bool = False,
    max_usd_per_gb: float | None = None,
    max_cost_usd: float | None = None,
    deadline_s: float | None = None,
) -> Objective | None:
    """The objective of the one number that is given; None without any.

    Raises ConfigurationInvalid for several numbers, or one that is not above zero.
    """
    numbers = (min_throughput_gbps, max_usd_per_gb, max_cost_usd, deadline_s)
    if sum(value is not None for value in numbers) > 1:
        raise ConfigurationInvalid.about(
            "give one objective: one of {min_throughput_gbps}, {max_usd_per_gb}, "
            "{max_cost_usd}, {deadline_s}"
        )
    if min_throughput_gbps is not None:
        return MinimizeCost(min_throughput_gbps, exactly=exactly)
    if deadline_s is not None:
        with naming({"seconds": "deadline_s"}):
            return Deadline(deadline_s)
    if max_usd_per_gb is not None or max_cost_usd is not None:
        return MaximizeThroughput(max_usd_per_gb=max_usd_per_gb, max_cost_usd=max_cost_usd)
    return None


#: The arguments of `chosen_objective`.
OBJECTIVE_NAMES: Final = tuple(signature(chosen_objective).parameters)
