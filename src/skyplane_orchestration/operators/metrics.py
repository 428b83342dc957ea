"""Metrics of a transfer, by Airflow's own StatsD or OpenTelemetry exporter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

PREFIX: Final = "skyplane.transfer"


def emit_metrics(facts: Mapping[str, Any], dag_id: str, task_id: str) -> None:
    """Emit counters, a timer and gauges about a transfer that has ended.

    Counters and the timer are of this try, so that their sums are right after retries. Gauges are
    of the whole transfer.

    Args:
        facts: see `lineage.facts.transfer_facts`.
    """
    # Imported here: a DAG file is parsed often, and emits nothing.
    from airflow.providers.common.compat.sdk import Stats

    own = facts["this_try"]
    tags = {
        "dag_id": dag_id,
        "task_id": task_id,
        "src": _region(facts["inputs"]),
        "dst": _region(facts["outputs"]),
        "state": facts["state"],
    }
    counters = {
        "bytes": own["copied_bytes"],
        "objects": own["copied"],
        "failed_objects": facts["failed"],
    }
    gauges = {
        "goodput_gbps": facts["goodput_gbps"],
        "drift": facts["drift"],
        "cost_usd": facts["planned_cost"]["total_usd"],
        "planned_cost_usd": facts["estimated_usd"],
    }
    for name, count in counters.items():
        Stats.incr(f"{PREFIX}.{name}", count, tags=tags)
    Stats.timing(f"{PREFIX}.seconds", timedelta(seconds=own["seconds"]), tags=tags)
    for name, value in gauges.items():
        if value is not None:
            Stats.gauge(f"{PREFIX}.{name}", value, tags=tags)


def _region(datasets: Sequence[Mapping[str, Any]]) -> str:
    """The region of the first dataset, as the value of a tag."""
    region: str = datasets[0]["region"]
    # A colon ends the name of a StatsD metric, and its tags.
    return region.replace(":", ".") or "unknown"
