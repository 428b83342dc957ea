"""The value of time: what fewer instances may cost, and what a plan says of time and money."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from skyplane_orchestration.formatting import counted, duration
from skyplane_orchestration.model.job import Deadline, MaximizeThroughput, Objective
from skyplane_orchestration.planner.candidate import Candidate

#: What fewer instances may cost, as a share of what their number decides: the value of the time,
#: and what instances cost before the transfer.
ROOM: Final = 0.02
#: Rates that differ by less than this share are equal.
_SAME: Final = 1e-3


def counts_time(objective: Objective) -> bool:
    """Whether the objective is about the time of the job.

    A floor and a price per GB are about the network alone: a job of few bytes in many objects must
    not miss them.
    """
    if isinstance(objective, MaximizeThroughput):
        return objective.max_cost_usd is not None
    return isinstance(objective, Deadline) or objective.time_usd_per_s > 0


def notes_on_time(found: Candidate, cheapest: Candidate) -> Iterator[str]:
    """A note that compares the plan with the cheapest one, unless they are as fast."""
    if found.gbps <= cheapest.gbps * (1 + _SAME):
        return
    more = max(found.usd_with_time(0.0) - cheapest.usd_with_time(0.0), 0.0)
    instances = counted(sum(found.overlay.instances.values()), "instance")
    if found.cost.total_usd is not None:
        yield (
            f"{instances}: {duration(found.done_s)} for ${more:.2f} more than the cheapest plan,"
            f" {duration(cheapest.done_s)} (objective 'cheapest')"
        )
    else:
        yield (
            f"{instances}: {found.gbps:.3g} Gbit/s for ${more:.4f} per GB more than the cheapest"
            f" plan, {cheapest.gbps:.3g} Gbit/s (objective 'cheapest')"
        )
