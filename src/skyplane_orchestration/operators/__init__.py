"""Airflow operators that plan, provision, transfer, tear down and sweep.

from skyplane_orchestration.operators import skyplane_transfer_group
"""

from __future__ import annotations

from skyplane_orchestration.errors import MissingExtra

try:
    import airflow.providers.common.compat.sdk  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.operators", "airflow") from None

from skyplane_orchestration.operators.group import skyplane_transfer_group
from skyplane_orchestration.operators.plan import SkyplanePlanOperator
from skyplane_orchestration.operators.provision import SkyplaneProvisionOperator
from skyplane_orchestration.operators.sweep import SkyplaneSweepOperator
from skyplane_orchestration.operators.teardown import SkyplaneTeardownOperator
from skyplane_orchestration.operators.transfer import SkyplaneTransferOperator

__all__ = [
    "SkyplanePlanOperator",
    "SkyplaneProvisionOperator",
    "SkyplaneSweepOperator",
    "SkyplaneTeardownOperator",
    "SkyplaneTransferOperator",
    "skyplane_transfer_group",
]
