"""The shortest definition: one op copies a prefix to a bucket of another region.

The op plans, starts gateways, copies, and ends the gateways. Small transfers need no gateways.
`build_skyplane_transfer_asset` makes an op of each step; see `sydney_to_paris`.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from skyplane_orchestration import Location, TransferJob
from skyplane_orchestration.dagster import SkyplaneResource, skyplane_assets

ORDERS = TransferJob(
    Location("s3://example-sydney/orders/", "aws:ap-southeast-2"),
    Location("s3://example-paris/orders/", "aws:eu-west-3"),
)


@skyplane_assets(jobs={"orders_paris": ORDERS}, retry_policy=dg.RetryPolicy(max_retries=2))
def orders(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
    yield from skyplane.run(context=context)


defs = dg.Definitions(
    assets=[orders], resources={"skyplane": SkyplaneResource(deployment="example")}
)
