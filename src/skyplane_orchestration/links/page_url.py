"""Addresses of the pages that `skyplane_orchestration.plugins` serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from airflow.configuration import conf
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS, AIRFLOW_V_3_1_PLUS

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

#: Where the pages are, below Airflow's base URL.
PREFIX: Final = "/skyplane"
REPORT: Final = "/report"
LINEAGE: Final = "/lineage"

#: Airflow 3.0 is not tested, so nothing is served there.
HAS_PAGES: Final[bool] = AIRFLOW_V_3_1_PLUS or not AIRFLOW_V_3_0_PLUS


def page_url(page: str, ti_key: TaskInstanceKey, anchor: str = "") -> str:
    """The URL of a page about a task, or one instance of a mapped task.

    Without a configured base URL it begins with the path. Empty if this Airflow has no pages.

    Args:
        page: `REPORT` or `LINEAGE`.
        anchor: section of the page.
    """
    if not HAS_PAGES:
        return ""
    section = "api" if AIRFLOW_V_3_0_PLUS else "webserver"
    base = (conf.get(section, "base_url", fallback="") or "").rstrip("/")
    query = urlencode(
        {
            "dag_id": ti_key.dag_id,
            "run_id": ti_key.run_id,
            "task_id": ti_key.task_id,
            "map_index": -1 if ti_key.map_index is None else ti_key.map_index,
        }
    )
    return f"{base}{PREFIX}{page}?{query}{f'#{anchor}' if anchor else ''}"
