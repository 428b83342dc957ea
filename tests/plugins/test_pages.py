"""The pages of Airflow 3 read the XComs of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS
from tests.transfer.samples import PLAN

from skyplane_orchestration.report.task_documents import PLAN_IN_PLACE, PlanInPlace

RUNNING = replace(PLAN, replaces=PLAN.shape, notes=("the other plan",))


@pytest.mark.long
@pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="Airflow 2 has the pages as a Flask blueprint")
def test_the_page_of_a_plan_task_shows_the_plan_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.models.xcom import XComModel
    from fastapi.testclient import TestClient
    from sqlalchemy import create_engine, insert
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import StaticPool

    from skyplane_orchestration.plugins import fastapi_pages

    engine = create_engine(
        "sqlite://", connect_args={"check_same_thread": False}, poolclass=StaticPool
    )
    XComModel.__table__.create(engine)

    @contextmanager
    def session() -> Iterator[Session]:
        with Session(engine) as made:
            yield made

    def push(run: int, task_id: str, key: str, value: Any, map_index: int = -1) -> None:
        names = {"dag_id": "dag", "run_id": f"run{run}", "dag_run_id": run, "task_id": task_id}
        row = {**names, "key": key, "value": value, "map_index": map_index}
        with engine.begin() as connection:
            connection.execute(insert(XComModel).values(row))

    def page(run: int, map_index: int = -1) -> str:
        place = {"dag_id": "dag", "run_id": f"run{run}", "task_id": "plan"}
        return client.get("/report", params={**place, "map_index": map_index}).text

    monkeypatch.setattr(fastapi_pages, "create_session", session)
    monkeypatch.setattr(fastapi_pages, "requires_access_dag", lambda **_: lambda: None)
    client = TestClient(fastapi_pages.make_app())
    for run, map_index in ((1, -1), (1, 0), (2, -1)):
        push(run, "plan", "return_value", PLAN.to_dict(), map_index)
    in_place = PlanInPlace(refused=PLAN, running=RUNNING).to_dict()
    push(1, "provision", PLAN_IN_PLACE, in_place)
    assert "the other plan" in page(1)
    assert "The fleet of task provision runs this plan" in page(1)
    # Another run and another map index run their own plans.
    for other in (page(2), page(1, map_index=0)):
        assert PLAN.src in other
        assert "runs this plan" not in other
