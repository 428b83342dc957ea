"""Connections in place of Airflow's."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from tests.clouds.accounts import account, aws_keys  # noqa: F401

from skyplane_orchestration.hooks.skyplane import SkyplaneHook


@dataclass
class FakeConnection:
    """What is read of a connection of a store, or of one of Skyplane."""

    conn_type: str | None = "aws"
    host: str | None = None
    login: str | None = None
    password: str | None = None
    extra_dejson: dict[str, Any] = field(default_factory=dict)
    port: int | None = None


def connection(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"conn_type": "skyplane", "login": None, "password": None, "extra_dejson": {}, **fields}
    )


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> dict[str, SimpleNamespace]:
    """What connections there are, in place of Airflow's."""
    known: dict[str, SimpleNamespace] = {}

    def get_connection(conn_id: str) -> SimpleNamespace:
        if conn_id not in known:
            raise AirflowNotFoundException(conn_id)
        return known[conn_id]

    monkeypatch.setattr(SkyplaneHook, "get_connection", staticmethod(get_connection))
    return known
