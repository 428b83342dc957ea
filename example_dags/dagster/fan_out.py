"""Copies a model to three regions: one op, and an asset for each destination.

One fleet copies to all of them, and what they share of the way is sent once. A failed copy does not
stop the other two, and a run may select some of them.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from skyplane_orchestration import Location, TransferJob
from skyplane_orchestration.dagster import (
    DagsterSkyplaneTranslator,
    SkyplaneResource,
    SkyplaneTranslatorData,
    build_skyplane_cleanup_sensor,
    skyplane_assets,
)

MODELS = Location("s3://example-sydney/models/", "aws:ap-southeast-2")
DESTINATIONS = {
    "models_paris": Location("s3://example-paris/models/", "aws:eu-west-3"),
    "models_tokyo": Location("s3://example-tokyo/models/", "aws:ap-northeast-1"),
    "models_oregon": Location("s3://example-oregon/models/", "aws:us-west-2"),
}


class Translator(DagsterSkyplaneTranslator):
    """Puts the assets in a group."""

    def get_asset_spec(self, data: SkyplaneTranslatorData) -> dg.AssetSpec:
        return super().get_asset_spec(data).replace_attributes(group_name="models")


@skyplane_assets(
    jobs={
        name: TransferJob(MODELS, place, conflict="replace-if-different")
        for name, place in DESTINATIONS.items()
    },
    translator=Translator(),
    retry_policy=dg.RetryPolicy(max_retries=2, delay=60),
)
def models(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
    yield from skyplane.run(context=context, one_fleet=True)


defs = dg.Definitions(
    assets=[models],
    resources={"skyplane": SkyplaneResource(deployment="example")},
    sensors=[build_skyplane_cleanup_sensor()],
)
