"""The objective that plain numbers name, for interfaces whose arguments are plain."""

from __future__ import annotations

from inspect import signature
from typing import Final, Literal

from skyplane_gateway.common.errors import naming
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Deadline, MaximizeThroughput, MinimizeCost, Objective


def chosen_objective(
    *,
    objective: Literal["knee", "cheapest"] = "knee",
    value_of_time_usd_per_hour: float | None = None,
    min_throughput_gbps: float | None = None,
    exactly: bool = False,
    max_usd_per_gb: float | None = None,
    max_cost_usd: float | None = None,
    deadline_s: float | None = None,
) -> Objective | None:
    """The objective of the one number that is given; None without any.

    Args:
        objective: of a job without such a number: the least sum of the bill and the value of time,
            or the cheapest plan at the rate of the direct path.
        value_of_time_usd_per_hour: joins the bill of a cheapest plan.

    Raises ConfigurationInvalid for several numbers, or one that is not above zero.
    """
    numbers = (min_throughput_gbps, max_usd_per_gb, max_cost_usd, deadline_s)
    if sum(value is not None for value in numbers) > 1:
        raise ConfigurationInvalid.about(
            "give one objective: one of {min_throughput_gbps}, {max_usd_per_gb}, "
            "{max_cost_usd}, {deadline_s}"
        )
    if objective == "cheapest" and (
        value_of_time_usd_per_hour is not None or any(value is not None for value in numbers)
    ):
        raise ConfigurationInvalid.about(
            "{objective} 'cheapest' excludes another objective and {value_of_time_usd_per_hour}"
        )
    if value_of_time_usd_per_hour is not None and any(value is not None for value in numbers[1:]):
        raise ConfigurationInvalid.about(
            "{value_of_time_usd_per_hour} has no effect with a ceiling or a deadline; omit one"
        )
    if objective == "cheapest":
        return MinimizeCost()
    if min_throughput_gbps is not None or value_of_time_usd_per_hour is not None:
        return MinimizeCost(min_throughput_gbps, exactly, value_of_time_usd_per_hour or 0.0)
    if deadline_s is not None:
        with naming({"seconds": "deadline_s"}):
            return Deadline(deadline_s)
    if max_usd_per_gb is not None or max_cost_usd is not None:
        return MaximizeThroughput(max_usd_per_gb=max_usd_per_gb, max_cost_usd=max_cost_usd)
    return None


#: The arguments of `chosen_objective`.
OBJECTIVE_NAMES: Final = tuple(signature(chosen_objective).parameters)
