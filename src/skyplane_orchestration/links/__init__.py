"""Links from Airflow's page of a task to its report and to the clouds' consoles."""

from __future__ import annotations

from skyplane_orchestration.errors import MissingExtra

try:
    import airflow.providers.common.compat.sdk  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.links", "airflow") from None
