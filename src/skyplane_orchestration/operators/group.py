"""`SkyplaneTransferGroup`: a task group that plans, provisions, transfers and tears down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from airflow.providers.common.compat.sdk import TaskGroup, TriggerRule

from skyplane_gateway.schema import checked
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.operators.arguments import Flag
from skyplane_orchestration.operators.base import DEFAULT_CONNECTION
from skyplane_orchestration.operators.finish import SkyplaneFinishOperator
from skyplane_orchestration.operators.fleet_job import DEFAULT_DEFERRABLE
from skyplane_orchestration.operators.job_arguments import JobArguments, ends_of
from skyplane_orchestration.operators.plan import SkyplanePlanOperator
from skyplane_orchestration.operators.provision import SkyplaneProvisionOperator
from skyplane_orchestration.operators.teardown import SkyplaneTeardownOperator
from skyplane_orchestration.operators.transfer import SkyplaneTransferOperator

#: The tasks, and what their page in the UI says of them.
_TASKS: Final = {
    "plan": "Checks the destination, lists the source, and plans the transfer of {ends}.",
    "provision": "Starts the gateways for {ends}. It undoes its work if it fails.",
    "transfer": "Copies {ends}. A retry joins the running transfer or continues a failed one.",
    "teardown": "Ends the gateways for {ends}, also after a failure.",
    "finish": "Fails the run if the transfer has failed; does nothing else.",
}


class SkyplaneTransferGroup(TaskGroup):
    """The tasks `plan`, `provision`, `transfer`, `teardown` and `finish`.

    Teardown always runs, also after a failed transfer or provision. A failed transfer and a
    failed teardown both fail the run. Tasks after the group start when the transfer has
    succeeded.

    Make it inside a DAG.

    Args:
        fleet_name: name of the fleet in the run; None: the group's id.
        manifest: path or URL for the list of all objects, in the format of its suffix.
        outlets: assets that the transfer updates.
        cancel_on_kill: see `SkyplaneTransferOperator`.
        deferrable: of the tasks `provision` and `transfer`.
        task_arguments: arguments of every task of the group, such as `{"retries": 2}`.
        task_overrides: task -> arguments of that task alone, such as
            `{"transfer": {"pool": "wide"}}`; they come before `task_arguments`.
        job: source, destination and objective; see `SkyplaneJobOperator`.

    Attributes:
        plan, provision, transfer, teardown, finish: the tasks.

    Raises ConfigurationInvalid: an argument is not valid, or no such task.
    """

    def __init__(
        self,
        group_id: str = "skyplane_transfer",
        *,
        skyplane_conn_id: str = DEFAULT_CONNECTION,
        fleet_name: str | None = None,
        manifest: str | None = None,
        outlets: Sequence[Any] = (),
        cancel_on_kill: Flag = True,
        deferrable: Flag = DEFAULT_DEFERRABLE,
        task_arguments: Mapping[str, Any] | None = None,
        task_overrides: Mapping[str, Mapping[str, Any]] | None = None,
        **job: Unpack[JobArguments],
    ) -> None:
        checked(tuple[Any, ...], outlets, "outlets")
        checked(Mapping[str, Any] | None, task_arguments, "task_arguments")
        checked(Mapping[str, Mapping[str, Any]] | None, task_overrides, "task_overrides")
        overrides = task_overrides or {}
        if unknown := sorted(set(overrides) - set(_TASKS)):
            raise ConfigurationInvalid(
                f"task_overrides names {', '.join(unknown)}; the tasks are {', '.join(_TASKS)}"
            )
        ends = ends_of(job)
        super().__init__(group_id=group_id, tooltip=f"copies {ends}")

        def arguments_of(task: str, *, has_fleet: bool = True) -> dict[str, Any]:
            fleet: dict[str, Any] = {
                "skyplane_conn_id": skyplane_conn_id,
                "fleet_name": fleet_name or self.group_id,
            }
            return {
                "task_id": task,
                "doc_md": _TASKS[task].format(ends=ends),
                **(fleet if has_fleet else {}),
                **(task_arguments or {}),
                **overrides.get(task, {}),
            }

        with self:
            self.plan = SkyplanePlanOperator(**job, **arguments_of("plan"))
            self.provision = SkyplaneProvisionOperator(
                plan=self.plan.output,
                deferrable=deferrable,
                **job,
                **arguments_of("provision"),
            )
            self.transfer = SkyplaneTransferOperator(
                fleet=self.provision.output,
                manifest=manifest,
                outlets=list(outlets),
                cancel_on_kill=cancel_on_kill,
                deferrable=deferrable,
                **job,
                **arguments_of("transfer"),
            )
            self.teardown = SkyplaneTeardownOperator(
                fleet=self.provision.output, **arguments_of("teardown")
            )
            self.finish = SkyplaneFinishOperator(**arguments_of("finish", has_fleet=False))
        self._wire()

    def _wire(self) -> None:
        self.plan >> self.provision >> self.transfer >> self.teardown
        self.teardown.as_teardown(setups=self.provision, on_failure_fail_dagrun=True)
        # The default rule of a teardown needs a successful setup. A failed setup may have
        # left gateways, for example if its worker died.
        self.teardown.trigger_rule = TriggerRule.ALL_DONE
        # Only the last tasks decide about a run. Without `finish`, a successful teardown
        # would hide a failed transfer.
        self.transfer >> self.finish


def skyplane_transfer_group(
    group_id: str = "skyplane_transfer", **arguments: Any
) -> SkyplaneTransferGroup:
    """Make a `SkyplaneTransferGroup`, which takes the same arguments."""
    return SkyplaneTransferGroup(group_id, **arguments)
