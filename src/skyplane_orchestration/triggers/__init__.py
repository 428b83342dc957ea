"""Airflow triggers: what a deferred task waits for."""

from __future__ import annotations

from skyplane_orchestration.errors import MissingExtra

try:
    import airflow.providers.common.compat.sdk  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.triggers", "airflow") from None
