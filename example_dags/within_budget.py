"""Copies each night's events while the forecast of the month is within the budget.

Forecast and plan use the learned grid of the deployment, if `learned_grid` is a field of the
connection `skyplane_default`: rates that its earlier transfers have measured.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.providers.common.compat.sdk import DAG, AirflowFailException, task

from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.operators import skyplane_transfer_group

BUDGET_USD = float(os.environ.get("SKYPLANE_MONTHLY_BUDGET_USD", "200"))
SOURCE_REGION, DESTINATION_REGION = "aws:ap-southeast-2", "aws:eu-west-3"
#: One night, as it was in November 2026.
NIGHT: dict[str, Any] = {
    "volume_gb": 40.0,
    "objects": 2000,
    "since": "2026-11",
    "growth_per_month": 0.03,
}


@task
def bill_of_month(ti: Any = None) -> dict[str, Any]:
    """The forecast of this month. Fails if it is above the budget; a retry would not help."""
    from skyplane_orchestration import planner

    job = planner.ForecastJob(
        "nights", SOURCE_REGION, DESTINATION_REGION, schedule="daily", **NIGHT
    )
    grid = SkyplaneHook().client({"ti": ti}, "forecast").grid
    found = planner.forecast(grid, [job], f"{datetime.now(UTC):%Y-%m}")
    if found.usd > BUDGET_USD:
        raise AirflowFailException(f"{found.month} costs {found.usd:.2f} USD, over {BUDGET_USD}")
    return found.to_dict()


with DAG(
    dag_id="within_budget",
    description="Replicates events while the month is within its budget",
    schedule="0 1 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["skyplane", "example"],
) as dag:
    nights = skyplane_transfer_group(
        "nights",
        source_url="s3://example-sydney/nights/",
        source_region=SOURCE_REGION,
        destination_url="s3://example-paris/nights/",
        destination_region=DESTINATION_REGION,
        conflict="replace-if-different",
        retries=2,
    )
    bill_of_month() >> nights
