"""Components: definitions that `defs.yaml` files of a Dagster project name."""

from __future__ import annotations

from skyplane_orchestration.dagster.components.scaffolder import SkyplaneTransferScaffolder
from skyplane_orchestration.dagster.components.transfer import SkyplaneTransferComponent
from skyplane_orchestration.dagster.components.transfer_model import TransferModel

__all__ = ["SkyplaneTransferComponent", "SkyplaneTransferScaffolder", "TransferModel"]
