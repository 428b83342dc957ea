"""Removes every day what crashed runs have left: gateways, journals and open uploads."""

import dagster as dg

from skyplane_orchestration import Location
from skyplane_orchestration.dagster import SkyplaneResource, build_skyplane_sweep_sensor

DAY_S = 86_400

defs = dg.Definitions(
    resources={"skyplane": SkyplaneResource(deployment="example")},
    sensors=[
        build_skyplane_sweep_sensor(
            destinations=[
                Location("s3://example-paris/", "aws:eu-west-3"),
                Location("s3://example-tokyo/", "aws:ap-northeast-1"),
            ],
            minimum_interval_seconds=DAY_S,
        )
    ],
)
