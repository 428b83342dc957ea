"""Plans for one source and several destinations: a byte pays each edge once."""

from __future__ import annotations

from skyplane_orchestration.planner.multicast.check import multicast_violations
from skyplane_orchestration.planner.multicast.optimize import (
    default_multicast_objective,
    multicast_plan,
)

__all__ = ["default_multicast_objective", "multicast_plan", "multicast_violations"]
