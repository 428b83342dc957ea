"""`SkyplanePlugin`: pages for the links of the operators, inside Airflow's own web server.

Every process of Airflow loads plugins. So the pages are imported when a web server asks for them.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from skyplane_orchestration.links.page_url import HAS_PAGES, PREFIX


class SkyplanePlugin(AirflowPlugin):
    """The pages at `/skyplane`: for Airflow 3.1 and later by FastAPI, for Airflow 2 by Flask."""

    name = "skyplane"

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        if not (HAS_PAGES and AIRFLOW_V_3_0_PLUS):
            return []
        from skyplane_orchestration.plugins.fastapi_pages import make_app

        return [{"app": make_app(), "url_prefix": PREFIX, "name": "Skyplane reports"}]

    @property
    def flask_blueprints(self) -> list[Any]:  # type: ignore[override]
        if AIRFLOW_V_3_0_PLUS:
            return []
        from skyplane_orchestration.plugins.flask_pages import make_blueprint

        return [make_blueprint()]
