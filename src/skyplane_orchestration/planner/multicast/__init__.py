"""One source, several destinations: every byte pays an edge once, however many it serves."""

from __future__ import annotations

from skyplane_orchestration.planner.multicast.check import multicast_violations
from skyplane_orchestration.planner.multicast.optimize import (
    default_multicast_objective,
    multicast_plan,
)

__all__ = ["default_multicast_objective", "multicast_plan", "multicast_violations"]
