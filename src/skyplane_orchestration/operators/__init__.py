"""Airflow operators that plan, provision, transfer, tear down, sweep and verify.

from skyplane_orchestration.operators import skyplane_transfer_group
"""

from __future__ import annotations

from skyplane_orchestration.errors import MissingExtra

try:
    import airflow.providers.common.compat.sdk  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.operators", "airflow") from None

from skyplane_orchestration.operators.group import SkyplaneTransferGroup, skyplane_transfer_group
from skyplane_orchestration.operators.plan import SkyplanePlanOperator
from skyplane_orchestration.operators.provision import SkyplaneProvisionOperator
from skyplane_orchestration.operators.sweep import SkyplaneSweepOperator
from skyplane_orchestration.operators.teardown import SkyplaneTeardownOperator
from skyplane_orchestration.operators.transfer import SkyplaneTransferOperator
from skyplane_orchestration.operators.verify import SkyplaneVerifyOperator

__all__ = [
    "SkyplanePlanOperator",
    "SkyplaneProvisionOperator",
    "SkyplaneSweepOperator",
    "SkyplaneTeardownOperator",
    "SkyplaneTransferGroup",
    "SkyplaneTransferOperator",
    "SkyplaneVerifyOperator",
    "skyplane_transfer_group",
]
