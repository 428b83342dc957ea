"""The Airflow hook that opens clients for tasks."""

from __future__ import annotations

from skyplane_orchestration.errors import MissingExtra

try:
    import airflow.providers.common.compat.sdk  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.hooks", "airflow") from None
