"""The Airflow plugin that serves a page about each task."""

from __future__ import annotations

from skyplane_orchestration.errors import MissingExtra

try:
    import airflow.providers.common.compat.sdk  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtra.of("skyplane_orchestration.plugins", "airflow") from None
