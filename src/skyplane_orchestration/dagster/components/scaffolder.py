"""`SkyplaneTransferScaffolder`: the `defs.yaml` with which a component begins."""

# No postponed annotations: Dagster reads those of the fields.

import dagster as dg
from pydantic import BaseModel, Field


class ScaffoldParams(BaseModel, extra="forbid"):
    """Options of `dg scaffold defs`."""

    name: str = Field(default="orders_paris", description="Key of the asset.")
    source_url: str = Field(
        default="s3://example-sydney/orders/", description="Where the objects are."
    )
    destination_url: str = Field(default="s3://example-paris/orders/", description="Where they go.")


class SkyplaneTransferScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes a `defs.yaml` with one transfer."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        transfer = (request.params or ScaffoldParams()).model_dump()
        dg.scaffold_component(
            request, {"transfers": [{**transfer, "conflict": "replace-if-different"}]}
        )
