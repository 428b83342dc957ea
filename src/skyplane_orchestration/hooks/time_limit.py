"""When the work of a task stops, so that its `execution_timeout` does not cut it off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.transfer.client_context import StopAt

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

#: Time that a task keeps of its `execution_timeout`, to stop what it has begun: a share of it, from
#: 20 s to 60 s. Gateways wait for requests to a slow store. A short limit keeps a third.
_RESERVE_SHARE: Final = 0.1
_SHORTEST_RESERVE_S: Final = 20.0
_LONGEST_RESERVE_S: Final = 60.0
_MOST_SHARE: Final = 1 / 3


def deadline_unix_s(limit: timedelta | None, context: Context) -> float | None:
    """Earlier than Airflow's own, which would end the task but not what it has begun."""
    if limit is None:
        return None
    limit_s = limit.total_seconds()
    reserve_s = min(max(limit_s * _RESERVE_SHARE, _SHORTEST_RESERVE_S), _LONGEST_RESERVE_S)
    reserve_s = min(reserve_s, limit_s * _MOST_SHARE)
    started = context["ti"].start_date or datetime.now(UTC)
    return float(started.timestamp() + limit_s - reserve_s)


def stop_at(context: Context) -> StopAt | None:
    """When the transfers of a task stop; None for a task without a limit of time."""
    task = getattr(context["ti"], "task", None)
    limit: timedelta | None = getattr(task, "execution_timeout", None)
    unix_s = deadline_unix_s(limit, context)
    return None if unix_s is None else StopAt(unix_s, timeout_reason(limit))


def timeout_reason(limit: timedelta | None) -> str:
    return f"the task has an execution_timeout of {limit}"
