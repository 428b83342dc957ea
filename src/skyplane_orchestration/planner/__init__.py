"""The planner: from a grid and an objective to a `TransferPlan`. No cloud SDK, no network."""

from __future__ import annotations

from skyplane_orchestration.planner.answer import PROOF_S, plan
from skyplane_orchestration.planner.baselines import best_relay, default_objective, direct
from skyplane_orchestration.planner.chart import frontier_svg
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.compare import Comparison, compare
from skyplane_orchestration.planner.frontier import frontier
from skyplane_orchestration.planner.multicast import (
    default_multicast_objective,
    multicast_plan,
    multicast_violations,
)
from skyplane_orchestration.planner.picture import plan_svg
from skyplane_orchestration.planner.problem import build_problem
from skyplane_orchestration.planner.reasons import Explanation, explain_plan
from skyplane_orchestration.planner.services import quote_services

__all__ = [
    "PROOF_S",
    "Comparison",
    "Explanation",
    "best_relay",
    "build_problem",
    "compare",
    "default_multicast_objective",
    "default_objective",
    "direct",
    "explain_plan",
    "frontier",
    "frontier_svg",
    "multicast_plan",
    "multicast_violations",
    "plan",
    "plan_svg",
    "quote_services",
    "violations",
]
