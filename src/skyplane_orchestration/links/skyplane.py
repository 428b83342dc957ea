"""The extra links of the operators.

Airflow 3 asks for a link in the worker, when the task ends. There the operator knows what it has
left in XCom, and Airflow would log an error for a value that is missing. Airflow 2 asks in the web
server. A link is empty if its task has left nothing to show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom

from skyplane_orchestration.links.page_url import LINEAGE, REPORT, page_url
from skyplane_orchestration.report import task_documents

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class SkyplaneReportLink(BaseOperatorLink):
    """Base of the links to a page of this library.

    Attributes:
        page: see `page_url`.
        anchor: section of the page.
        needs: names of XCom values; the page has something to show if there is one of them.
    """

    page: ClassVar[str] = REPORT
    anchor: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = (task_documents.RETURN_VALUE,)

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        if not any(_pushed(operator, ti_key, name) for name in self.needs):
            return ""
        return page_url(self.page, ti_key, self.anchor)


class SkyplanePlanLink(SkyplaneReportLink):
    """The plan as a picture and tables."""

    name = "Plan"
    anchor = "plan"


class SkyplaneTransferLink(SkyplaneReportLink):
    """State and result of the transfer, also of a failed one."""

    name = "Transfer"
    anchor = "transfer"
    needs = (task_documents.RETURN_VALUE, task_documents.FAILED_TRANSFER)


class SkyplaneLineageLink(SkyplaneReportLink):
    """The facts of the transfer's lineage as JSON."""

    name = "Lineage"
    page = LINEAGE
    needs = (task_documents.LINEAGE,)


class SkyplaneConsoleLink(BaseOperatorLink):
    """The cloud's console with the fleet's instances.

    A fleet in several places links to its section of the report, which has a link for each. Empty
    if there are no instances in clouds.
    """

    name = "Cloud console"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        fleet = _pushed(operator, ti_key, task_documents.RETURN_VALUE)
        urls = fleet.get("console_urls") if isinstance(fleet, Mapping) else None
        different = sorted(set(urls.values())) if urls else []
        if len(different) > 1:
            return page_url(REPORT, ti_key, "fleet")
        return str(different[0]) if different else ""


def _pushed(operator: BaseOperator, ti_key: TaskInstanceKey, name: str) -> Any:
    """A value that the task has pushed to XCom; None if there is none."""
    pushed: Mapping[str, Any] | None = getattr(operator, "pushed", None)
    return pushed.get(name) if pushed is not None else XCom.get_value(ti_key=ti_key, key=name)
