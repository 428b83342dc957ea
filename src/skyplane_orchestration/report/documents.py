"""What a task has left for others: a plan, a fleet, a result, the facts of its lineage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult

T = TypeVar("T")

#: Names of the values that the tasks leave. The return value is a plan, a fleet or a result.
RETURN_VALUE: Final = "return_value"
FAILED_TRANSFER: Final = "failed_transfer"
LINEAGE: Final = "lineage"
NAMES: Final = (RETURN_VALUE, FAILED_TRANSFER, LINEAGE)


@dataclass(frozen=True, slots=True)
class TaskDocuments:
    """The documents of one task.

    Attributes:
        plan: also that of a fleet.
        lineage: see `lineage.facts.transfer_facts`.
        problems: documents that cannot be read, each with the reason.
    """

    plan: TransferPlan | None = None
    fleet: Fleet | None = None
    result: TransferResult | None = None
    lineage: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == TaskDocuments()


def documents_of(values: Mapping[str, Any]) -> TaskDocuments:
    """The documents among the values of a task.

    Args:
        values: name, of `NAMES` -> value. Values that are no document of this library are left
            out.
    """
    returned, failed = values.get(RETURN_VALUE), values.get(FAILED_TRANSFER)
    lineage = values.get(LINEAGE)
    found = TaskDocuments(lineage=lineage if isinstance(lineage, Mapping) else None)
    for value in (failed, returned):
        if not isinstance(value, Mapping):
            continue
        if "transfer_key" in value:
            found = _with(found, TransferResult.from_dict, value, lambda result: {"result": result})
        elif "gateways" in value:
            found = _with(
                found, Fleet.from_dict, value, lambda fleet: {"fleet": fleet, "plan": fleet.plan}
            )
        elif "solver" in value:
            found = _with(found, TransferPlan.from_dict, value, lambda plan: {"plan": plan})
    return found


def _with(
    found: TaskDocuments,
    read: Callable[[Mapping[str, Any]], T],
    value: Mapping[str, Any],
    fields_of: Callable[[T], dict[str, Any]],
) -> TaskDocuments:
    """`found` with one more document, or with the reason why it cannot be read."""
    try:
        return replace(found, **fields_of(read(value)))
    except ConfigurationInvalid as error:
        return replace(found, problems=(*found.problems, str(error)))
