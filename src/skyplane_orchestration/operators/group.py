"""`skyplane_transfer_group`: a task group that plans, provisions, transfers and tears down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from airflow.providers.common.compat.sdk import TaskGroup, TriggerRule

from skyplane_orchestration.operators.base import DEFAULT_CONNECTION
from skyplane_orchestration.operators.finish import SkyplaneFinishOperator
from skyplane_orchestration.operators.job import JobArguments
from skyplane_orchestration.operators.plan import SkyplanePlanOperator
from skyplane_orchestration.operators.provision import SkyplaneProvisionOperator
from skyplane_orchestration.operators.teardown import SkyplaneTeardownOperator
from skyplane_orchestration.operators.transfer import SkyplaneTransferOperator

if TYPE_CHECKING:
    from collections.abc import Sequence


def skyplane_transfer_group(
    group_id: str = "skyplane_transfer",
    *,
    skyplane_conn_id: str = DEFAULT_CONNECTION,
    fleet_name: str | None = None,
    manifest: str | None = None,
    outlets: Sequence[Any] = (),
    cancel_on_kill: bool = True,
    task_arguments: dict[str, Any] | None = None,
    **job: Unpack[JobArguments],
) -> TaskGroup:
    """Make the tasks `plan`, `provision`, `transfer`, `teardown` and `finish` in a group.

    Teardown always runs, also after a failed transfer or provision. A failed transfer and a
    failed teardown both fail the run. Tasks after the group start when the transfer has
    succeeded.

    Call this inside a DAG.

    Args:
        fleet_name: name of the fleet in the run; None: the group's id.
        manifest: path or URL for the list of all objects (Parquet).
        outlets: assets that the transfer updates.
        cancel_on_kill: see `SkyplaneTransferOperator`.
        task_arguments: arguments of every task of the group, such as `{"retries": 2}`.
        job: source, destination and objective; see `SkyplaneJobOperator`.
    """
    with TaskGroup(group_id=group_id) as group:
        shared: dict[str, Any] = {
            **(task_arguments or {}),
            "skyplane_conn_id": skyplane_conn_id,
            "fleet_name": fleet_name or group.group_id,
        }
        plan = SkyplanePlanOperator(task_id="plan", **job, **shared)
        provision = SkyplaneProvisionOperator(
            task_id="provision", plan=plan.output, **job, **shared
        )
        transfer = SkyplaneTransferOperator(
            task_id="transfer",
            fleet=provision.output,
            manifest=manifest,
            outlets=list(outlets),
            cancel_on_kill=cancel_on_kill,
            **job,
            **shared,
        )
        teardown = SkyplaneTeardownOperator(task_id="teardown", fleet=provision.output, **shared)
        plan >> provision >> transfer >> teardown
        teardown.as_teardown(setups=provision, on_failure_fail_dagrun=True)
        # The default rule of a teardown needs a successful setup. A failed setup may have
        # left gateways, for example if its worker died.
        teardown.trigger_rule = TriggerRule.ALL_DONE
        # Only the last tasks decide about a run. Without `finish`, a successful teardown
        # would hide a failed transfer.
        transfer >> SkyplaneFinishOperator(task_id="finish", **(task_arguments or {}))
    return group
