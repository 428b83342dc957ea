"""Definitions with one asset in the one-op form, for `dagster asset materialize -f`.

Its ends and the place of its gateways are in the environment.
"""

import os
from collections.abc import Iterator
from typing import Any

import dagster as dg

from skyplane_orchestration import Location, TransferJob
from skyplane_orchestration.dagster import SkyplaneResource, skyplane_assets
from skyplane_orchestration.model.job import Limits

SOURCE, DESTINATION = (
    Location(
        os.environ[f"SKYPLANE_DEMO_{end}_URL"],
        region,
        os.environ[f"SKYPLANE_DEMO_{end}_ENDPOINT"],
    )
    for end, region in (("SOURCE", "aws:ap-southeast-2"), ("DESTINATION", "aws:eu-west-3"))
)


@skyplane_assets(
    jobs={"paris": TransferJob(SOURCE, DESTINATION, limits=Limits(instance_limit=1, chunk_mib=8))}
)
def one_op(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
    place: Any = os.environ["GATEWAYS"]
    yield from skyplane.run(context=context, gateways=place)


defs = dg.Definitions(assets=[one_op], resources={"skyplane": SkyplaneResource(deployment="tests")})
