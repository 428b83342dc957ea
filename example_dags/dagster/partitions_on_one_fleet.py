"""Copies a list of tables, one partition each, over one fleet that a backfill shares.

Launch a backfill of all partitions: Dagster makes one run of it. The gateways start once, and end
after the last table. A run of one partition copies one table again.
"""

import dagster as dg

from skyplane_orchestration import Location
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    build_skyplane_transfer_asset,
)

#: The tables to copy; with a catalogue, use `DynamicPartitionsDefinition`.
TABLES = dg.StaticPartitionsDefinition(["customers", "invoices", "orders"])

tables_paris = build_skyplane_transfer_asset(
    "tables_paris",
    source=Location("s3://example-sydney/tables/{partition_key}/", "aws:ap-southeast-2"),
    destination=Location("s3://example-paris/tables/{partition_key}/", "aws:eu-west-3"),
    partitions_def=TABLES,
    backfill_policy=dg.BackfillPolicy.single_run(),
    conflict="replace-if-different",
    retry_policy=dg.RetryPolicy(max_retries=2),
)

defs = dg.Definitions(
    assets=[tables_paris],
    resources={"skyplane": SkyplaneResource(deployment="example")},
    sensors=[build_skyplane_cleanup_sensor()],
)
