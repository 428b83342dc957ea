"""A hook with fake clients, and a context as Airflow gives it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fake_client import FakeClient

from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators.base import SkyplaneOperator


class FakeHook:
    """Hands out one client per fleet name."""

    def __init__(self) -> None:
        self.clients: dict[str, FakeClient] = {}
        self.gateways: str | None = None

    def placed(self, location: Location) -> Location:
        return location

    def placed_job(self, job: TransferJob) -> TransferJob:
        return job

    def client(self, context: Any, fleet_name: str, gateways: str | None = None) -> FakeClient:
        self.gateways = gateways
        if fleet_name not in self.clients:
            identity = RunIdentity("local", "dag", "run", fleet_name)
            self.clients[fleet_name] = FakeClient(identity)
        return self.clients[fleet_name]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> FakeHook:
    """In place of the hook of every operator."""
    fake = FakeHook()
    monkeypatch.setattr(SkyplaneOperator, "hook", fake)
    return fake


class FakeOutletEvents:
    """Events of assets by URI, as Airflow keeps them: an asset of Airflow 3.1 has no hash."""

    def __init__(self) -> None:
        self._events: dict[str, SimpleNamespace] = {}

    def __getitem__(self, asset: Any) -> SimpleNamespace:
        return self._events.setdefault(asset.uri, SimpleNamespace(extra={}))


@pytest.fixture
def context() -> Any:
    """`context["pushed"]` holds what was put into XCom."""
    pushed: dict[str, Any] = {}
    instance = SimpleNamespace(xcom_push=lambda key, value: pushed.__setitem__(key, value))
    return {"ti": instance, "outlet_events": FakeOutletEvents(), "pushed": pushed}


@pytest.fixture
def task_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[[], str]:
    """What was logged; Airflow 3 logs past the standard library."""
    caplog.set_level(logging.INFO)
    return lambda: capsys.readouterr().out + caplog.text
