"""The planner: from a grid and an objective to a `TransferPlan`, without cloud SDK or network.

Public names load on first use (PEP 562), and `plan` loads NumPy and SciPy on first use: they take
half a second to load, and a plan within one region does not need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from skyplane_orchestration.planner.baselines import (
        best_relay as best_relay,
        default_objective as default_objective,
        direct as direct,
    )
    from skyplane_orchestration.planner.check import violations as violations
    from skyplane_orchestration.planner.comparison import (
        Comparison as Comparison,
        compare as compare,
    )
    from skyplane_orchestration.planner.explain import explain_plan as explain_plan
    from skyplane_orchestration.planner.forecasting import (
        Forecast as Forecast,
        ForecastJob as ForecastJob,
        forecast as forecast,
    )
    from skyplane_orchestration.planner.multicast import (
        multicast_plan as multicast_plan,
        multicast_violations as multicast_violations,
    )
    from skyplane_orchestration.planner.optimize import plan as plan
    from skyplane_orchestration.planner.pareto import frontier as frontier
    from skyplane_orchestration.planner.plots.frontier_chart import frontier_svg as frontier_svg
    from skyplane_orchestration.planner.plots.plan_map import plan_svg as plan_svg
    from skyplane_orchestration.planner.problem import build_problem as build_problem

#: The module of each public name. No module has the name of a public function: Python makes an
#: imported submodule an attribute of its package.
_MODULES: Final = {
    "Comparison": "comparison",
    "Forecast": "forecasting",
    "ForecastJob": "forecasting",
    "best_relay": "baselines",
    "build_problem": "problem",
    "compare": "comparison",
    "default_objective": "baselines",
    "direct": "baselines",
    "explain_plan": "explain",
    "forecast": "forecasting",
    "frontier": "pareto",
    "frontier_svg": "plots.frontier_chart",
    "multicast_plan": "multicast",
    "multicast_violations": "multicast",
    "plan": "optimize",
    "plan_svg": "plots.plan_map",
    "violations": "check",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
