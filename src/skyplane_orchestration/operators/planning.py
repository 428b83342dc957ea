"""Arguments of operators that say how to plan: objective, limits and policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.operators.base import SkyplaneOperator

#: A number, or a template that renders to one.
Number = float | str | None


class SkyplanePlanningOperator(SkyplaneOperator):
    """Base of the operators that need an objective.

    Args:
        min_throughput_gbps: the cheapest plan at this rate or more.
        exactly: plan at exactly `min_throughput_gbps`, as the paper does.
        max_usd_per_gb, max_cost_usd: the fastest plan for at most this price or cost.
        deadline_s: the cheapest plan that ends within this time. Default of the four: the
            cheapest plan at the rate of the direct path.
        allow_regions, exclude_regions: globs of the regions that may and may not relay.
        max_job_usd: highest total cost. A plan that costs more is refused, and a transfer
            that has cost so much is stopped; the task fails without a retry.
        instance_limit, vcpu_quota, source_read_gbps, destination_write_gbps, safety_margin,
            chunk_mib: see `Limits`.
    """

    template_fields: Sequence[str] = (
        *SkyplaneOperator.template_fields,
        "min_throughput_gbps",
        "max_usd_per_gb",
        "max_cost_usd",
        "deadline_s",
        "max_job_usd",
        "source_read_gbps",
        "destination_write_gbps",
        "allow_regions",
        "exclude_regions",
    )

    def __init__(
        self,
        *,
        min_throughput_gbps: Number = None,
        exactly: bool = False,
        max_usd_per_gb: Number = None,
        max_cost_usd: Number = None,
        deadline_s: Number = None,
        allow_regions: Sequence[str] = (),
        exclude_regions: Sequence[str] = (),
        max_job_usd: Number = None,
        instance_limit: int | None = None,
        vcpu_quota: Mapping[str, int] | None = None,
        source_read_gbps: Number = None,
        destination_write_gbps: Number = None,
        safety_margin: float = 0.0,
        chunk_mib: int = 16,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_throughput_gbps = min_throughput_gbps
        self.exactly = exactly
        self.max_usd_per_gb = max_usd_per_gb
        self.max_cost_usd = max_cost_usd
        self.deadline_s = deadline_s
        self.allow_regions = allow_regions
        self.exclude_regions = exclude_regions
        self.max_job_usd = max_job_usd
        self.instance_limit = instance_limit
        self.vcpu_quota = dict(vcpu_quota or {})
        self.source_read_gbps = source_read_gbps
        self.destination_write_gbps = destination_write_gbps
        self.safety_margin = safety_margin
        self.chunk_mib = chunk_mib

    def objective(self) -> Objective | None:
        """The objective; None for the default. Raises ConfigurationInvalid."""
        floor = self._number("min_throughput_gbps")
        per_gb = self._number("max_usd_per_gb")
        cost = self._number("max_cost_usd")
        seconds = self._number("deadline_s")
        if sum(value is not None for value in (floor, per_gb, cost, seconds)) > 1:
            raise ConfigurationInvalid(
                "give one objective: min_throughput_gbps, max_usd_per_gb, max_cost_usd or "
                "deadline_s"
            )
        if floor is not None:
            return MinimizeCost(floor, exactly=self.exactly)
        if seconds is not None:
            return Deadline(seconds)
        if per_gb is not None or cost is not None:
            return MaximizeThroughput(max_usd_per_gb=per_gb, max_cost_usd=cost)
        return None

    def limits(self) -> Limits:
        return Limits(
            instance_limit=self.instance_limit,
            chunk_mib=self.chunk_mib,
            vcpu_quota=self.vcpu_quota,
            source_read_gbps=self._number("source_read_gbps"),
            destination_write_gbps=self._number("destination_write_gbps"),
            safety_margin=self.safety_margin,
        )

    def policy(self) -> Policy:
        return Policy(
            texts(self.allow_regions), texts(self.exclude_regions), self._number("max_job_usd")
        )

    def _number(self, name: str) -> float | None:
        """An argument that a template may have rendered; an empty text means None."""
        value: Number = getattr(self, name)
        if value is None or value == "":
            return None
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ConfigurationInvalid(f"{name} is not a number: {value!r}") from None


def texts(values: Sequence[str]) -> tuple[str, ...]:
    """Several texts, or one that a template has rendered."""
    return (values,) if isinstance(values, str) else tuple(values)
