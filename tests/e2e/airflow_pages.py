"""Visits Airflow's own web server, made of the database of the scenarios, and notes its answers.

A visitor is somebody who may read (`reader`), somebody with a login and no rights (`stranger`), or
nobody. Nothing of Airflow is replaced: its auth manager decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from skyplane_orchestration.links.page_url import PREFIX, REPORT, page_url

#: An answer: status, content type, text.
Get = Callable[[str], dict[str, Any]]


class Place:
    """One try of a task, as links know it."""

    def __init__(self, dag_id: str, run_id: str, task_id: str) -> None:
        self.dag_id, self.run_id, self.task_id = dag_id, run_id, task_id
        self.map_index = -1

    @property
    def links_path(self) -> str:
        return f"dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{self.task_id}/links"


def visit(places: Mapping[str, Place], dags: Mapping[str, Any]) -> dict[str, Any]:
    """What each visitor sees of each place: the report, the links, and what the links lead to."""
    is_two = version("apache-airflow").startswith("2.")
    visitors = _visitors_of_two(dags) if is_two else _visitors_of_three()
    api = f"{_prefix()}/api/{'v1' if is_two else 'v2'}"
    seen: dict[str, Any] = {}
    for name, place in places.items():
        path = _path(page_url(REPORT, place))  # type: ignore[arg-type]
        seen[name] = {who: get(path) for who, get in visitors.items()}
        reader = visitors["reader"]
        answer = reader(f"{api}/{place.links_path}")
        # A mapped task has no try without an index.
        found = answer["json"] if answer["status"] == 200 else {}
        seen[name]["links"] = found.get("extra_links", found)
        seen[name]["behind"] = {
            title: reader(_path(url))
            for title, url in seen[name]["links"].items()
            if url and "/skyplane/" in url
        }
    return seen


def _prefix() -> str:
    """The path of Airflow's base URL."""
    return urlsplit(page_url("", Place("", "", ""))).path.removesuffix(PREFIX)  # type: ignore[arg-type]


def _path(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}"


def _visitors_of_three() -> dict[str, Get]:
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    app = create_app(apps="core")

    def visitor(role: str | None, is_browser: bool = True) -> Get:
        user = SimpleAuthManagerUser(username=f"with-{role}", role=role)
        token = get_auth_manager().generate_jwt(user)
        # A browser sends the cookie of Airflow's UI; programs send a header.
        cookies = {COOKIE_NAME_JWT_TOKEN: token} if is_browser else None
        headers = None if is_browser else {"Authorization": f"Bearer {token}"}
        return _get_by(TestClient(app, cookies=cookies, headers=headers))

    return {
        "nobody": _get_by(TestClient(app)),
        "stranger": visitor(None),
        "program": visitor("viewer", is_browser=False),
        "reader": visitor("viewer"),
    }


def _get_by(client: Any) -> Get:
    def get(path: str) -> dict[str, Any]:
        answer = client.get(path, follow_redirects=False)
        kind = answer.headers.get("content-type", "")
        return {
            "status": answer.status_code,
            "headers": dict(answer.headers),
            "text": answer.text,
            "json": answer.json() if kind.startswith("application/json") else None,
        }

    return get


def _visitors_of_two(dags: Mapping[str, Any]) -> dict[str, Get]:
    serialized = import_module("airflow.models.serialized_dag").SerializedDagModel
    for dag in dags.values():
        dag.sync_to_db()
        serialized.write_dag(dag)
    app = import_module("airflow.www.app").create_app(testing=True)
    app.config["WTF_CSRF_ENABLED"] = False
    manager = app.appbuilder.sm

    def visitor(role: str) -> Get:
        client = app.test_client()
        mail, word = f"{role}@example.org", "word"
        with app.app_context():
            found = manager.find_role(role) or manager.add_role(role)
            assert manager.add_user(role, "A", "B", mail, found, word)
        client.post(f"{_prefix()}/login/", data={"username": role, "password": word})
        return _get_by_flask(client)

    return {
        "nobody": _get_by_flask(app.test_client()),
        "stranger": visitor("Stranger"),
        "reader": visitor("Viewer"),
    }


def _get_by_flask(client: Any) -> Get:
    def get(path: str) -> dict[str, Any]:
        answer = client.get(path)
        return {
            "status": answer.status_code,
            "headers": {name.lower(): value for name, value in answer.headers.items()},
            "text": answer.get_data(as_text=True),
            "json": answer.get_json(silent=True),
        }

    return get
