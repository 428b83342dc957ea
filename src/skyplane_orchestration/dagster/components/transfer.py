"""`SkyplaneTransferComponent`: transfers that a `defs.yaml` lists."""

# No postponed annotations: Dagster reads those of the fields.

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import dagster as dg
from dagster.components.resolved.core_models import OpSpec
from dagster.components.utils.translation import ResolvedTranslationFn
from pydantic import Field

from skyplane_orchestration.dagster.components.scaffolder import SkyplaneTransferScaffolder
from skyplane_orchestration.dagster.components.transfer_model import Rendered, TransferModel, Whole
from skyplane_orchestration.dagster.decorator import skyplane_assets
from skyplane_orchestration.dagster.one_op import Event
from skyplane_orchestration.dagster.partitions import require_manifests
from skyplane_orchestration.dagster.resources import SkyplaneResource
from skyplane_orchestration.dagster.translator import (
    DagsterSkyplaneTranslator,
    SkyplaneTranslatorData,
)
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import GatewayPlace
from skyplane_orchestration.model.job import TransferJob


@dg.scaffold_with(SkyplaneTransferScaffolder)
class SkyplaneTransferComponent(dg.Component, dg.Model, Rendered):
    """Transfers between S3, Google Cloud Storage and Azure Blob Storage, one asset each.

    One op copies for all assets that a run selects; see `skyplane_assets`. The project defines the
    resource `skyplane`, a `SkyplaneResource`.
    """

    transfers: Sequence[TransferModel] = Field(min_length=1, description="One asset each.")
    manifest: str | None = Field(
        None,
        description="Path or URL for the list of all objects, in the format of its suffix;"
        " {asset_key} and {partition_key} are replaced.",
    )
    gateways: GatewayPlace = Field(
        "auto", description="Whether small jobs are copied inside the op: auto, always or never."
    )
    max_retries: Annotated[Whole, Field(ge=0)] | None = Field(
        None, description="Retries of the op."
    )
    op: OpSpec | None = Field(None, description="Name, pool, tags and backfill policy of the op.")
    translation: ResolvedTranslationFn[SkyplaneTranslatorData] = Field(
        None,
        description="Attributes of each asset, partitions_def among them. Templates may use"
        " data.name and data.job.",
    )

    def get_asset_spec(self, data: SkyplaneTranslatorData) -> dg.AssetSpec:
        """The asset of a transfer; override this to change what `translation` cannot."""
        spec = DagsterSkyplaneTranslator().get_asset_spec(data)
        return spec if self.translation is None else self.translation(spec, data)

    def execute(
        self, context: dg.AssetExecutionContext, skyplane: SkyplaneResource
    ) -> Iterator[Event]:
        """Copy for the selected assets; override this to do more in the op."""
        yield from skyplane.run(context=context, manifest=self.manifest, gateways=self.gateways)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Raises ConfigurationInvalid for a transfer that is not valid."""
        jobs = {transfer.name: transfer.job() for transfer in self.transfers}
        if len(jobs) < len(self.transfers):
            names = [transfer.name for transfer in self.transfers]
            raise ConfigurationInvalid(f"transfers have the same name twice: {', '.join(names)}")
        op = self.op or OpSpec()

        @skyplane_assets(
            jobs=jobs,
            translator=_ComponentTranslator(self),
            name=op.name or self._op_name(jobs),
            backfill_policy=op.backfill_policy,
            pool=op.pool,
            op_tags=op.tags,
            retry_policy=dg.RetryPolicy(max_retries=self.max_retries) if self.max_retries else None,
        )
        def transfers(
            context: dg.AssetExecutionContext, skyplane: SkyplaneResource
        ) -> Iterator[Event]:
            yield from self.execute(context, skyplane)

        for spec in transfers.specs:
            require_manifests(self.manifest, spec.partitions_def, len(jobs))
        return dg.Definitions(assets=[transfers])

    def _op_name(self, jobs: Mapping[str, TransferJob]) -> str:
        """A name that no other component has: that of the first asset."""
        first = SkyplaneTranslatorData(*next(iter(jobs.items())))
        return self.get_asset_spec(first).key.to_python_identifier("transfers")


class _ComponentTranslator(DagsterSkyplaneTranslator):
    def __init__(self, component: SkyplaneTransferComponent) -> None:
        self._component = component

    def get_asset_spec(self, data: SkyplaneTranslatorData) -> dg.AssetSpec:
        return self._component.get_asset_spec(data)
