"""The GraphQL API of Dagster's webserver, as its pages use it."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

_LOCATIONS: Final = """
query { repositoriesOrError { ... on RepositoryConnection {
  nodes { name location { name } } } } }
"""
_LAUNCH: Final = """
mutation ($given: ExecutionParams!) { launchRun(executionParams: $given) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
_AGAIN: Final = """
mutation ($given: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $given) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
_TERMINATE: Final = """
mutation ($run: String!) { terminateRun(runId: $run) {
  __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }
"""
_RUN: Final = """
query ($run: ID!) { runOrError(runId: $run) { ... on Run { status endTime } }
  logsForRun(runId: $run) { ... on EventConnection {
    events { __typename ... on MessageEvent { stepKey message } } } } }
"""
_TICKS: Final = """
query ($given: SensorSelector!) { sensorOrError(sensorSelector: $given) {
  ... on Sensor { sensorState { ticks(limit: 20) { timestamp status skipReason
    error { message } } } } } }
"""


_GREETING_SEEN: Final = "mutation { setNuxSeen }"


@dataclass(frozen=True)
class Tick:
    """One evaluation of a sensor; `begun_s` is seconds since 1970."""

    begun_s: float
    status: str
    told: str


@dataclass(frozen=True)
class RunView:
    """A run: its status, and names of the steps that have started and succeeded."""

    status: str
    ended_s: float
    started: tuple[str, ...]
    succeeded: tuple[str, ...]
    messages: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        return self.status in ("SUCCESS", "FAILURE", "CANCELED")


@dataclass(frozen=True)
class GraphQl:
    url: str

    def ask(self, query: str, **variables: Any) -> Any:
        """The data of an answer. Raises AssertionError with the errors of the server."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            document = json.load(answer)
        assert not document.get("errors"), document["errors"]
        return document["data"]

    def repository(self) -> dict[str, str] | None:
        """Selector of the code location; None as long as it is not loaded."""
        try:
            nodes = self.ask(_LOCATIONS)["repositoriesOrError"].get("nodes", [])
        except OSError:  # Not up yet.
            return None
        if not nodes:
            return None
        return {
            "repositoryName": nodes[0]["name"],
            "repositoryLocationName": nodes[0]["location"]["name"],
        }

    def launch(self, repository: dict[str, str], *assets: str) -> str:
        """Materialize assets; the id of the run."""
        given = {
            "selector": {
                **repository,
                "pipelineName": "__ASSET_JOB",
                "assetSelection": [{"path": [asset]} for asset in assets],
            },
            "mode": "default",
        }
        return self._launched(self.ask(_LAUNCH, given=given)["launchRun"])

    def launch_again(self, run_id: str) -> str:
        """Re-execute a run from its failure; the id of the new run."""
        given = {"parentRunId": run_id, "strategy": "FROM_FAILURE"}
        return self._launched(self.ask(_AGAIN, given=given)["launchRunReexecution"])

    def _launched(self, answer: dict[str, Any]) -> str:
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def terminate(self, run_id: str) -> None:
        answer = self.ask(_TERMINATE, run=run_id)["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer

    def run(self, run_id: str) -> RunView:
        answer = self.ask(_RUN, run=run_id)
        events = answer["logsForRun"]["events"]

        def steps(kind: str) -> tuple[str, ...]:
            return tuple(
                event["stepKey"].rpartition(".")[2]
                for event in events
                if event["__typename"] == kind
            )

        return RunView(
            status=answer["runOrError"]["status"],
            ended_s=answer["runOrError"]["endTime"] or 0.0,
            started=steps("ExecutionStepStartEvent"),
            succeeded=steps("ExecutionStepSuccessEvent"),
            messages=tuple(event.get("message", "") for event in events),
        )

    def dismiss_greeting(self) -> None:
        """The pages of a new instance first show a dialogue."""
        self.ask(_GREETING_SEEN)

    def ticks(self, repository: dict[str, str], sensor: str) -> list[Tick]:
        """The newest ticks of a sensor."""
        given = {**repository, "sensorName": sensor}
        state = self.ask(_TICKS, given=given)["sensorOrError"]["sensorState"]
        return [
            Tick(row["timestamp"], row["status"], row["skipReason"] or str(row["error"] or ""))
            for row in state["ticks"]
        ]
