"""The REST API of Airflow 3, as a person's browser uses it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.e2e.held_store import wait_for


@dataclass(frozen=True)
class Rest:
    """The API for the user `admin`.

    Args:
        password: None where everybody is an administrator; see the settings of the site.
    """

    url: str
    password: str | None = None

    @cached_property
    def token(self) -> str:
        login = {"username": "admin", "password": self.password}
        request = urllib.request.Request(
            f"{self.url}/auth/token",
            data=None if self.password is None else json.dumps(login).encode(),
            headers={"Content-Type": "application/json"},
        )

        def ask() -> str:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return str(json.load(answer)["access_token"])
            except OSError:  # Not up yet.
                return ""

        return wait_for(ask, "the API server")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """An answer. Raises AssertionError with the server's words if it refuses."""
        request = urllib.request.Request(
            f"{self.url}/api/v2/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error

    def trigger(self, dag_id: str, logical_date: str | None = None) -> None:
        body = {"dag_run_id": "run", "logical_date": logical_date}
        self.call("POST", f"dags/{dag_id}/dagRuns", body)

    def clear(self, dag_id: str, task_id: str) -> list[str]:
        """Clear one task alone; the tasks that Airflow has cleared."""
        body = {
            "dag_run_id": "run",
            "task_ids": [task_id],
            "dry_run": False,
            "only_failed": False,
        }
        answer = self.call("POST", f"dags/{dag_id}/clearTaskInstances", body)
        return sorted(row["task_id"] for row in answer["task_instances"])

    def mark_failed(self, dag_id: str, task_id: str) -> None:
        path = f"dags/{dag_id}/dagRuns/run/taskInstances/{task_id}"
        self.call("PATCH", path, {"new_state": "failed"})

    def state(self, dag_id: str) -> str:
        return str(self.call("GET", f"dags/{dag_id}/dagRuns/run")["state"])

    def task(self, dag_id: str, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call(
            "GET", f"dags/{dag_id}/dagRuns/run/taskInstances/{task_id}"
        )
        return found

    def pool(self) -> dict[str, Any]:
        """Slots of the default pool, by what they do."""
        found: dict[str, Any] = self.call("GET", "pools/default_pool")
        return found

    def links(self, dag_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """The extra links of a task: title -> URL, None if it is empty."""
        path = f"dags/{dag_id}/dagRuns/run/taskInstances/{task_id}/links?map_index={map_index}"
        found: dict[str, Any] = self.call("GET", path)["extra_links"]
        return found

    def page(self, path: str, with_login: bool = True) -> tuple[int, str]:
        """Status and text of a page, as a browser gets it with the cookie of the UI."""
        headers = {"Cookie": f"_token={self.token}"} if with_login else {}
        request = urllib.request.Request(f"{self.url}{path.partition('#')[0]}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def result(
        self, dag_id: str, task_id: str, map_index: int = -1, name: str = "return_value"
    ) -> dict[str, Any]:
        """What a task has left in XCom; of a mapped one, that of one instance."""
        path = f"dags/{dag_id}/dagRuns/run/taskInstances/{task_id}/xcomEntries/{name}"
        value = self.call("GET", f"{path}?stringify=false&map_index={map_index}")["value"]
        found: dict[str, Any] = json.loads(value) if isinstance(value, str) else value
        return found
