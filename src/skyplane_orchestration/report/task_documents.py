"""What a task has left for others: a plan, a fleet, a result, the facts of its lineage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from skyplane_gateway.common.schema import Document
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult

#: Names of the values that the tasks leave. The return value is a plan, a fleet or a result.
RETURN_VALUE: Final = "return_value"
FAILED_TRANSFER: Final = "failed_transfer"
LINEAGE: Final = "lineage"
NAMES: Final = (RETURN_VALUE, FAILED_TRANSFER, LINEAGE)
#: The `PlanInPlace` of a provision task. The page of the plan task shows it too.
PLAN_IN_PLACE: Final = "plan_in_place"

#: A field that only such a document has -> its name and type.
_KINDS: Final[Mapping[str, tuple[str, Any]]] = {
    "transfer_key": ("result", TransferResult),
    "gateways": ("fleet", Fleet),
    "solver": ("plan", TransferPlan),
}


@dataclass(frozen=True, slots=True)
class PlanInPlace(Document, what="a plan in place of another"):
    """The plan that a fleet runs in place of one that a cloud has refused."""

    refused: TransferPlan
    running: TransferPlan


@dataclass(frozen=True, slots=True)
class TaskDocuments:
    """The documents of one task.

    Attributes:
        plan: also that of a fleet. If a cloud refused the plan of a task, that which runs.
        runs_in: the task whose fleet runs this plan in place of that of this task; else empty.
        lineage: see `lineage.facts.transfer_facts`.
        problems: documents that cannot be read, each with the reason.
    """

    plan: TransferPlan | None = None
    fleet: Fleet | None = None
    result: TransferResult | None = None
    lineage: Mapping[str, Any] | None = None
    runs_in: str = ""
    problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == TaskDocuments()


def documents_of(
    values: Mapping[str, Any], in_place: Mapping[str, Any] | None = None
) -> TaskDocuments:
    """The documents among the values of a task.

    Args:
        values: name, of `NAMES` -> value. Values that are no document of this library are left
            out.
        in_place: task of the same run and map index -> its value `PLAN_IN_PLACE`.
    """
    returned, failed = values.get(RETURN_VALUE), values.get(FAILED_TRANSFER)
    lineage = values.get(LINEAGE)
    found = TaskDocuments(lineage=lineage if isinstance(lineage, Mapping) else None)
    for value in (failed, returned):
        document: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
        name, kind = next((one for mark, one in _KINDS.items() if mark in document), ("", None))
        if kind is None:
            continue
        try:
            made = kind.from_dict(document)
        except ConfigurationInvalid as error:
            found = replace(found, problems=(*found.problems, str(error)))
            continue
        given: dict[str, Any] = {name: made}
        if isinstance(made, Fleet):
            given["plan"] = made.plan
        found = replace(found, **given)
    if found.fleet is not None:
        return found  # The plan of a fleet is the one that it runs.
    for task, document in (in_place or {}).items():
        try:
            plans = PlanInPlace.from_dict(document)
        except ConfigurationInvalid as error:
            return replace(found, problems=(*found.problems, f"{task}: {error}"))
        if plans.refused == found.plan:
            return replace(found, plan=plans.running, runs_in=task)
    return found
