"""`SkyplanePlanOperator`: plans a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.configuration import conf

from skyplane_orchestration.links.skyplane import SkyplanePlanLink
from skyplane_orchestration.model.fleet import LOCAL
from skyplane_orchestration.operators.job import SkyplaneJobOperator
from skyplane_orchestration.transfer.progress_log import heading

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client


#: The connection says where gateways run, so this is not known when the DAG is parsed.
_MAY_BE_ELSEWHERE: Final = (
    "gateways will be processes of one worker, and %s may run the next tasks on another one, where"
    " they fail with foreign-host; use SkyplaneTransferOperator without fleet, a queue with one"
    " worker, or the provisioner ssh or cloud"
)


#: They run all tasks on the scheduler's machine.
_ON_ONE_MACHINE: Final = frozenset({"LocalExecutor", "SequentialExecutor", "DebugExecutor"})


def remote_executor(wanted: str | None) -> str:
    """The class name of a task's executor; empty if it runs all tasks on one machine.

    Args:
        wanted: `executor` of the task: a name, a path or an alias; None: the default executor.
    """
    # Teams of Airflow 3 follow after semicolons.
    configured = conf.get("core", "executor", fallback="LocalExecutor").partition(";")[0]
    entries = [entry.strip() for entry in configured.split(",")]
    chosen = entries[0]
    if wanted is not None:
        # An alias, a path or a class.
        names = {entry: (*entry.rpartition(":")[::2], _class_of(entry)) for entry in entries}
        chosen = next((entry for entry in entries if wanted in names[entry]), wanted)
    name = _class_of(chosen)
    return "" if name in _ON_ONE_MACHINE else name


def _class_of(entry: str) -> str:
    """The class of `alias:path.to.Class`, of a path or of a name."""
    return entry.rpartition(":")[2].rpartition(".")[2]


class SkyplanePlanOperator(SkyplaneJobOperator):
    """Plans a job: regions, instances, paths and price.

    The task first checks that the destination exists and that a move may delete at the
    source. It lists the source to get the volume. If both listings show that there is nothing
    to copy, the plan's volume is 0, and the provision task starts no gateways.

    If gateways are processes of the worker, and the executor may run the next tasks on another
    one, the log has a warning.

    Returns the plan, `TransferPlan.to_dict()`.
    """

    operator_extra_links = (SkyplanePlanLink(),)

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        job = self.hook.placed_job(self.transfer_job())
        self.log.info("%s", heading(job))
        executor = remote_executor(self.executor)
        if executor and client.provisioner.name == LOCAL:
            self.log.warning(_MAY_BE_ELSEWHERE, executor)
        job_run = client.job_run(job)
        job_run.check()
        plan = job_run.plan()
        if job_run.has_nothing_to_copy():
            plan = plan.without_work()
        self.log.info("%s to %s: %s", plan.src, plan.dst, plan.in_words)
        if plan.promised_gbps is not None:
            promise = "promised: %.2f Gbit/s, in %.0f %% of transfers"
            self.log.info(promise, plan.promised_gbps, 100 * plan.confidence)
        for path in plan.paths:
            self.log.info("path: %s, %.2f Gbit/s", " -> ".join(path.regions), path.flow_gbps)
        for note in plan.notes:
            self.log.warning("%s", note)
        return plan.to_dict()
