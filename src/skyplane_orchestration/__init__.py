"""Move objects between clouds over a planned overlay of regions, as tasks of a DAG or an asset.

The public names load when they are first used (PEP 562): importing this package costs
nothing and loads no cloud SDK, no orchestrator and no solver. Airflow's names are in
`operators` and `hooks`, Dagster's in `dagster`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client as Client
    from skyplane_orchestration.errors import SkyplaneError as SkyplaneError
    from skyplane_orchestration.model.fleet import Fleet as Fleet
    from skyplane_orchestration.model.identity import RunIdentity as RunIdentity
    from skyplane_orchestration.model.job import (
        Deadline as Deadline,
        MaximizeThroughput as MaximizeThroughput,
        MinimizeCost as MinimizeCost,
        TransferJob as TransferJob,
    )
    from skyplane_orchestration.model.location import Location as Location
    from skyplane_orchestration.model.plan import TransferPlan as TransferPlan
    from skyplane_orchestration.model.result import TransferResult as TransferResult

    __version__: str

_HOMES: Final = {
    "Client": "client",
    "Deadline": "model.job",
    "Fleet": "model.fleet",
    "Location": "model.location",
    "MaximizeThroughput": "model.job",
    "MinimizeCost": "model.job",
    "RunIdentity": "model.identity",
    "SkyplaneError": "errors",
    "TransferJob": "model.job",
    "TransferPlan": "model.plan",
    "TransferResult": "model.result",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("skyplane-orchestration")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
