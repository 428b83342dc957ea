"""Which rate of an instance type counts: that of its network or of its processors, and of the
network the sustained one or that of its burst.

A burst counts only for a transfer that surely ends while it lasts. Without a volume, and for the
most throughput, nothing bounds the transfer's time, so the sustained rates count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from skyplane_orchestration.formatting import counted
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import Deadline, MinimizeCost, Objective
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.instance_options import roles_in
from skyplane_orchestration.units import gb_to_gbit

#: Flows of a plan may exceed a limit by rounding.
_ROUNDING: Final = 1 + 1e-6


def longest_s(objective: Objective, volume_gb: float | None) -> float | None:
    """The longest that a transfer of this objective may take, in seconds; None if unbounded."""
    if not volume_gb:
        return None
    if isinstance(objective, MinimizeCost) and objective.floor_gbps > 0:
        return gb_to_gbit(volume_gb) / objective.floor_gbps
    return objective.seconds if isinstance(objective, Deadline) else None


def with_bursts(grid: Grid, objective: Objective, volume_gb: float | None) -> Grid:
    """The grid whose types have the rates that count for this job."""
    longest = longest_s(objective, volume_gb)
    if longest is None or not any(_counts(kind, longest) for kind in grid.types):
        return grid
    return replace(
        grid,
        types=tuple(kind.bursting() if _counts(kind, longest) else kind for kind in grid.types),
    )


def _counts(kind: InstanceType, longest_s: float) -> bool:
    return kind.has_burst and longest_s <= kind.burst_s


def notes_on_bursts(grid: Grid, plan: TransferPlan) -> Iterator[str]:
    """A note for each region whose instances carry more than they sustain.

    Args:
        grid: with the sustained rates.
    """
    for tag, group in plan.instances.items():
        kind = grid.instance_type(tag.partition(":")[0], group.type)
        out = sum(edge.flow_gbps for edge in plan.edges if edge.src == tag) / group.count
        into = sum(edge.flow_gbps for edge in plan.edges if edge.dst == tag) / group.count
        if out > kind.egress_gbps * _ROUNDING or into > kind.ingress_gbps * _ROUNDING:
            yield (
                f"{group.type} in {tag} carries more than it sustains ({_rates(kind)}): the"
                f" transfer ends within the {kind.burst_s:g} s that its burst lasts"
            )


def rate_sentences(grid: Grid, plan: TransferPlan, objective: Objective) -> Iterator[str]:
    """For each type of the plan with a burst: which rates count, and why.

    Args:
        grid: with the sustained rates.
    """
    longest = longest_s(objective, plan.volume_gb)
    used = {(tag.partition(":")[0], group.type) for tag, group in plan.instances.items()}
    for cloud, name in sorted(used):
        kind = grid.instance_type(cloud, name)
        if not kind.has_burst:
            continue
        burst = f"its burst ({_rates(kind.bursting())}, {kind.burst_s:g} s)"
        if longest is None:
            why = f"{burst} does not count, because nothing bounds the transfer's time"
        elif _counts(kind, longest):
            why = f"{burst} counts, because the transfer takes at most {longest:.0f} s"
        else:
            why = f"{burst} does not count, because the transfer may take {longest:.0f} s"
        yield f"{name} sustains {_rates(kind)} per instance; {why}."


def processor_sentences(grid: Grid, plan: TransferPlan) -> Iterator[str]:
    """For each region of the plan whose processors carry less than its network: by how much.

    Args:
        grid: with the rates that count for the plan.
    """
    for tag, group in plan.instances.items():
        kind = grid.instance_type(tag.partition(":")[0], group.type)
        roles = roles_in(tag, plan.src, (plan.dst,))
        network = kind.egress_gbps if tag == plan.src else kind.ingress_gbps
        most = kind.processor_gbps(*roles)
        if kind.speed is not None and most < network:
            yield (
                f"The gateway's processor binds in {tag} before its network: as {roles[0]},"
                f" {counted(kind.processes, 'vCPU')} of {kind.name} carry {most:.3g} Gbit/s and"
                f" the network {network:g} ({kind.speed.provenance})."
            )


def _rates(kind: InstanceType) -> str:
    return f"{kind.egress_gbps:g} Gbit/s out and {kind.ingress_gbps:g} in"
