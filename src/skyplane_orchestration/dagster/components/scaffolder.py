"""`SkyplaneTransferScaffolder`: the `defs.yaml` with which a component begins, and its resource."""

# No postponed annotations: Dagster reads those of the fields.

from typing import Final

import dagster as dg
from pydantic import BaseModel, Field

#: A file of a project, which all components of the project share.
RESOURCE: Final = """import dagster as dg
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_cleanup_sensor,
    build_skyplane_sweep_sensor,
)


@dg.definitions
def skyplane() -> dg.Definitions:
    return dg.Definitions(
        resources={"skyplane": SkyplaneResource(deployment="prod-eu")},
        sensors=[build_skyplane_cleanup_sensor(), build_skyplane_sweep_sensor()],
    )
"""


class ScaffoldParams(BaseModel, extra="forbid"):
    """Options of `dg scaffold defs`."""

    name: str = Field(default="orders_paris", description="Key of the asset.")
    source_url: str = Field(
        default="s3://example-sydney/orders/", description="Where the objects are."
    )
    destination_url: str = Field(default="s3://example-paris/orders/", description="Where they go.")


class SkyplaneTransferScaffolder(dg.Scaffolder[ScaffoldParams]):
    """Writes a `defs.yaml` with one transfer, and the resource unless the project has it."""

    @classmethod
    def get_scaffold_params(cls) -> type[ScaffoldParams]:
        return ScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
        transfer = (request.params or ScaffoldParams()).model_dump()
        dg.scaffold_component(
            request, {"transfers": [{**transfer, "conflict": "replace-if-different"}]}
        )
        # The folder `defs` of a project that the component is in; else the one beside it.
        path = request.target_path
        root = next((one for one in path.parents if one.name == "defs"), path.parent)
        # Code of the project may name the resource; environments below it do not count.
        code = (request.project_root or root).rglob("*.py")
        own = (one for one in code if "site-packages" not in one.parts)
        if not any("SkyplaneResource" in one.read_text("utf-8", "ignore") for one in own):
            (root / "skyplane.py").write_text(RESOURCE, encoding="utf-8")
