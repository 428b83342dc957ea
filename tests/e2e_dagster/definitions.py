"""The code location of `make e2e-dagster`: an asset for each moment at which a run is terminated.

`E2E_<name>` is the endpoint of an asset's destination.
"""

from __future__ import annotations

import faulthandler
import os
import signal

import dagster as dg

from skyplane_orchestration import Location
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    build_skyplane_transfer_asset,
)
from skyplane_orchestration.model.job import Limits

#: SIGUSR1 writes the stacks of a process there; `Lab.stacks` reads them.
_STACKS = os.open(os.environ["E2E_STACKS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
faulthandler.register(signal.SIGUSR1, file=_STACKS)

#: The last step that ends before the run is terminated; `half_way`: in mid-transfer.
MOMENTS = ("plan", "provision", "transfer", "teardown", "half_way")


def asset_of(moment: str) -> dg.AssetsDefinition:
    name = f"after_{moment}"
    return build_skyplane_transfer_asset(
        name,
        source=Location("s3://source/data/", "aws:ap-southeast-2", os.environ["E2E_SOURCE"]),
        destination=Location(
            f"s3://{name.replace('_', '-')}/copy/",
            "aws:eu-west-3",
            os.environ[f"E2E_{name.upper()}"],
        ),
        limits=Limits(instance_limit=1, chunk_mib=5),
    )


defs = dg.Definitions(
    assets=[asset_of(moment) for moment in MOMENTS],
    resources={"skyplane": SkyplaneResource(deployment="e2e")},
    sensors=[build_skyplane_cleanup_sensor(minimum_interval_seconds=5)],
)
