"""`SkyplaneFinishOperator`: the last task of a group; it does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class SkyplaneFinishOperator(BaseOperator):
    """Succeeds after the transfer, since Airflow judges a run by its last tasks.

    The scheduler sets its state without a worker, as for an `EmptyOperator`, whose module
    differs between Airflow 2 and 3.
    """

    inherits_from_empty_operator = True

    def execute(self, context: Context) -> None:
        return None
