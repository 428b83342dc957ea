"""The pages for Airflow 3: read-only, for users who may read the XComs of the DAG."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.responses import HTMLResponse, JSONResponse
from sqlalchemy import select

from skyplane_orchestration.links.page_url import LINEAGE, REPORT
from skyplane_orchestration.report.html import PAGE_HEADERS
from skyplane_orchestration.report.page import report_page
from skyplane_orchestration.report.task_documents import NAMES, PLAN_IN_PLACE, documents_of


def make_app() -> FastAPI:
    """The application that Airflow's API server mounts.

    It asks the auth manager of Airflow on every request, as Airflow's own XCom endpoint does. A
    browser proves itself by the cookie of Airflow's UI.
    """
    # The routes have no description of their own: an OpenAPI page would need no login.
    app = FastAPI(title="Skyplane reports", openapi_url=None)
    may_read = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.XCOM))

    @app.get(REPORT, dependencies=[may_read])
    def report(
        dag_id: str, run_id: str, task_id: str, map_index: Annotated[int, Query(ge=-1)] = -1
    ) -> HTMLResponse:
        values = _values(dag_id, run_id, task_id, map_index)
        documents = documents_of(values, _plans_in_place(dag_id, run_id, map_index))
        status = 404 if documents.is_empty else 200
        page = report_page(f"{task_id} of {dag_id}, {run_id}", documents)
        return HTMLResponse(page, status, dict(PAGE_HEADERS))

    @app.get(LINEAGE, dependencies=[may_read])
    def lineage(
        dag_id: str, run_id: str, task_id: str, map_index: Annotated[int, Query(ge=-1)] = -1
    ) -> JSONResponse:
        documents = documents_of(_values(dag_id, run_id, task_id, map_index))
        if documents.lineage is None:
            raise HTTPException(404, "this task has left no lineage")
        return JSONResponse(documents.lineage, headers=dict(PAGE_HEADERS))

    return app


def _values(dag_id: str, run_id: str, task_id: str, map_index: int) -> Mapping[str, Any]:
    """XCom values of one task by name, as the database has them.

    A custom XCom backend may keep values elsewhere. Airflow asks it in workers only, and so the
    page does not show such values.
    """
    query = select(XComModel.key, XComModel.value).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id == run_id,
        XComModel.task_id == task_id,
        XComModel.map_index == map_index,
        XComModel.key.in_(NAMES),
    )
    with create_session() as session:
        return {key: _plain(value) for key, value in session.execute(query)}


def _plans_in_place(dag_id: str, run_id: str, map_index: int) -> Mapping[str, Any]:
    """Task of the run -> the plan that its fleet runs in place of the one of a plan task."""
    query = select(XComModel.task_id, XComModel.value).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id == run_id,
        XComModel.map_index == map_index,
        XComModel.key == PLAN_IN_PLACE,
    )
    with create_session() as session:
        return {task_id: _plain(value) for task_id, value in session.execute(query)}


def _plain(value: Any) -> Any:
    """A document of JSON; some releases store its text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
