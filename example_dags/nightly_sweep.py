"""Removes every night what crashed runs have left: gateways, journals and open uploads."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.common.compat.sdk import DAG

from skyplane_orchestration.operators import SkyplaneSweepOperator

with DAG(
    dag_id="nightly_sweep",
    description="Removes abandoned fleets, journals and uploads",
    schedule="0 5 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["skyplane", "example"],
) as dag:
    SkyplaneSweepOperator(
        task_id="sweep",
        destinations=["s3://example-paris/", "s3://example-tokyo/"],
        retries=2,
    )
