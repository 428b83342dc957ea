"""`SkyplaneSweepOperator`: the last net, for fleets that nobody will come back for."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.operators.base import SkyplaneOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client


class SkyplaneSweepOperator(SkyplaneOperator):
    """Removes the deployment's fleets that are past their end or have lost their gateways.

    Args:
        report_only: only say what would be removed.
        older_than_s: also those made longer ago than this.
    """

    def __init__(
        self, *, report_only: bool = False, older_than_s: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.report_only = report_only
        self.older_than_s = older_than_s

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.sweep(dry_run=self.report_only, older_than_s=self.older_than_s)
        for orphan in report.orphans:
            self.log.info("fleet %s: %s %s", orphan.key, orphan.reason, orphan.error)
        if report.failed:
            raise TeardownIncomplete(
                "; ".join(f"fleet {orphan.key}: {orphan.error}" for orphan in report.failed)
            )
        return asdict(report)
