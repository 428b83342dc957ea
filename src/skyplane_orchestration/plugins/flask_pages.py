"""The pages for Airflow 2: read-only, for users who may read the XComs of the DAG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.auth.managers.models.resource_details import DagAccessEntity
from airflow.models.xcom import XCom
from airflow.utils.session import create_session
from airflow.www.auth import has_access_dag
from flask import Blueprint, Response, jsonify, request

from skyplane_orchestration.links.page_url import LINEAGE, PREFIX, REPORT
from skyplane_orchestration.report.html import PAGE_HEADERS
from skyplane_orchestration.report.page import report_page
from skyplane_orchestration.report.task_documents import NAMES, PLAN_IN_PLACE, documents_of


def make_blueprint() -> Blueprint:
    """The blueprint that Airflow's web server registers.

    Airflow sends a browser without a login to its login page.
    """
    blueprint = Blueprint("skyplane", __name__, url_prefix=PREFIX)

    @blueprint.get(REPORT)
    @has_access_dag("GET", DagAccessEntity.XCOM)  # type: ignore[untyped-decorator]
    def report() -> Response:
        documents = documents_of(_values(), _plans_in_place())
        title = f"{request.args['task_id']} of {request.args['dag_id']}, {request.args['run_id']}"
        status = 404 if documents.is_empty else 200
        return Response(report_page(title, documents), status, dict(PAGE_HEADERS))

    @blueprint.get(LINEAGE)
    @has_access_dag("GET", DagAccessEntity.XCOM)  # type: ignore[untyped-decorator]
    def lineage() -> Response:
        documents = documents_of(_values())
        answer: Response = jsonify(documents.lineage)
        answer.status_code = 404 if documents.lineage is None else 200
        answer.headers.update(PAGE_HEADERS)
        return answer

    return blueprint


def _values() -> Mapping[str, Any]:
    """XCom values of the request's task by name, read by the XCom backend of Airflow."""
    place = {name: request.args[name] for name in ("dag_id", "run_id", "task_id")}
    map_index = request.args.get("map_index", -1, type=int)
    return {name: XCom.get_one(key=name, map_index=map_index, **place) for name in NAMES}


def _plans_in_place() -> Mapping[str, Any]:
    """Task of the run -> the plan that its fleet runs in place of the one of a plan task."""
    with create_session() as session:
        rows = XCom.get_many(
            key=PLAN_IN_PLACE,
            dag_ids=request.args["dag_id"],
            run_id=request.args["run_id"],
            map_indexes=request.args.get("map_index", -1, type=int),
            session=session,
        ).with_entities(XCom.task_id, XCom.value)
        return {row.task_id: XCom.deserialize_value(row) for row in rows}
