"""`SkyplaneTransferGroup`: a task group that plans, provisions, transfers and tears down."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from typing import Any, Final

from airflow.providers.common.compat.sdk import BaseOperator, TaskGroup, TriggerRule

from skyplane_gateway.common.schema import checked
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.operators.arguments import Flag, accepted_by
from skyplane_orchestration.operators.base import DEFAULT_CONNECTION
from skyplane_orchestration.operators.fleet_job import DEFAULT_DEFERRABLE
from skyplane_orchestration.operators.job_arguments import ends_of
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


class SkyplaneFinishOperator(BaseOperator):
    """Succeeds after the transfer, since Airflow judges a run by its last tasks.

    The scheduler sets its state without a worker, as for an `EmptyOperator`, whose module
    differs between Airflow 2 and 3.
    """

    inherits_from_empty_operator = True

    def execute(self, context: Any) -> None:
        return None


_OPERATORS: Final[Mapping[str, type[BaseOperator]]] = {
    "plan": SkyplanePlanOperator,
    "provision": SkyplaneProvisionOperator,
    "transfer": SkyplaneTransferOperator,
    "teardown": SkyplaneTeardownOperator,
    "finish": SkyplaneFinishOperator,
}

#: Arguments that a group gives to its tasks itself, and one that says how to do without a group.
_OWN: Final = frozenset({"task_id", "task_group", "plan", "fleet", "gateways"})

#: Arguments that all operators take -> the only task that gets them. With the trigger rule of a
#: whole group, `finish` would succeed after a failed transfer.
_OF_ONE: Final = {"trigger_rule": "plan", "inlets": "transfer", "outlets": "transfer"}

#: What some task takes of the arguments of a group.
_OF_TASKS: Final = frozenset[str]().union(*map(accepted_by, _OPERATORS.values())) - _OWN

_OF_GROUP: Final = frozenset(signature(TaskGroup).parameters) - {"group_id"}


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
        task_overrides: task -> arguments of that task alone, such as
            `{"transfer": {"pool": "wide"}}`; they come before all others.
        arguments: source, destination and objective, see `SkyplaneJobOperator`; arguments of
            Airflow's tasks, such as `retries` and `pool`; arguments of `TaskGroup`. Each task
            gets those that it takes. `trigger_rule` is that of `plan`, the first task.

    Attributes:
        plan, provision, transfer, teardown, finish: the tasks.

    Raises ConfigurationInvalid: an argument is not valid, or no such argument or task.
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
        task_overrides: Mapping[str, Mapping[str, Any]] | None = None,
        **arguments: Any,
    ) -> None:
        checked(tuple[Any, ...], outlets, "outlets")
        overrides = _checked_overrides(task_overrides)
        _require_known(type(self).__name__, arguments, _OF_GROUP | _OF_TASKS)
        ends = ends_of(arguments)
        of_group = {name: arguments[name] for name in arguments.keys() & _OF_GROUP}
        super().__init__(group_id=group_id, **{"tooltip": f"copies {ends}", **of_group})
        given = {
            "skyplane_conn_id": skyplane_conn_id,
            "fleet_name": fleet_name or self.group_id,
            "manifest": manifest,
            "outlets": list(outlets),
            "cancel_on_kill": cancel_on_kill,
            "deferrable": deferrable,
            **{name: one for name, one in arguments.items() if name not in _OF_GROUP - {"dag"}},
        }

        def arguments_of(task: str, **own: Any) -> dict[str, Any]:
            taken = accepted_by(_OPERATORS[task])
            return {
                "task_id": task,
                "doc_md": _TASKS[task].format(ends=ends),
                **own,
                **{
                    name: one
                    for name, one in given.items()
                    if name in taken and _OF_ONE.get(name, task) == task
                },
                **overrides.get(task, {}),
            }

        with self:
            self.plan = SkyplanePlanOperator(**arguments_of("plan"))
            self.provision = SkyplaneProvisionOperator(
                **arguments_of("provision", plan=self.plan.output)
            )
            fleet = self.provision.output
            self.transfer = SkyplaneTransferOperator(**arguments_of("transfer", fleet=fleet))
            self.teardown = SkyplaneTeardownOperator(**arguments_of("teardown", fleet=fleet))
            self.finish = SkyplaneFinishOperator(**arguments_of("finish"))
        self.plan >> self.provision >> self.transfer >> self.teardown
        self.teardown.as_teardown(setups=self.provision, on_failure_fail_dagrun=True)
        # The default rule of a teardown needs a successful setup. A failed setup may have
        # left gateways, for example if its worker died.
        rule = overrides.get("teardown", {}).get("trigger_rule", TriggerRule.ALL_DONE)
        self.teardown.trigger_rule = TriggerRule(rule)
        # Only the last tasks decide about a run. Without `finish`, a successful teardown
        # would hide a failed transfer.
        self.transfer >> self.finish


def _require_known(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigurationInvalid for an argument that the owner does not have."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "docs/reference/operators.md has all"
            raise ConfigurationInvalid(f"{owner} has no argument {name!r}; {hint}")


def _checked_overrides(given: object) -> Mapping[str, Mapping[str, Any]]:
    """Raises ConfigurationInvalid for a task or an argument that there is not."""
    hint = Mapping[str, Mapping[str, Any]] | None
    overrides: Mapping[str, Mapping[str, Any]] = checked(hint, given, "task_overrides") or {}
    if unknown := sorted(set(overrides) - set(_TASKS)):
        raise ConfigurationInvalid(
            f"task_overrides names {', '.join(unknown)}; the tasks are {', '.join(_TASKS)}"
        )
    for task, arguments in overrides.items():
        _require_known(f"task_overrides[{task!r}]", arguments, accepted_by(_OPERATORS[task]))
    return overrides


def skyplane_transfer_group(
    group_id: str = "skyplane_transfer", **arguments: Any
) -> SkyplaneTransferGroup:
    """Make a `SkyplaneTransferGroup`, which takes the same arguments."""
    return SkyplaneTransferGroup(group_id, **arguments)
