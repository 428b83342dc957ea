"""The links of the operators: where they lead, and when they are empty."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.providers.common.compat.sdk import BaseOperatorLink, XCom
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from skyplane_orchestration.links.skyplane import (
    SkyplaneConsoleLink,
    SkyplaneLineageLink,
    SkyplanePlanLink,
    SkyplaneTransferLink,
)
from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneTransferOperator,
)
from skyplane_orchestration.provider_info import get_provider_info

SETTING = f"AIRFLOW__{'API' if AIRFLOW_V_3_0_PLUS else 'WEBSERVER'}__BASE_URL"
BASE = "https://airflow.example.com/data"
OPERATORS = (SkyplanePlanOperator, SkyplaneProvisionOperator, SkyplaneTransferOperator)

#: One instance of a mapped task. A run's id has characters that a URL must quote.
KEY: Any = SimpleNamespace(
    dag_id="a dag", run_id="manual__2026-01-01T00:00:00+00:00", task_id="move.plan", map_index=3
)


@pytest.fixture(autouse=True)
def values(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The task's values in XCom."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(XCom, "get_value", lambda *, ti_key, key: found.get(key))
    monkeypatch.setenv(SETTING, BASE)
    return found


def link(kind: type[BaseOperatorLink]) -> str:
    return kind().get_link(None, ti_key=KEY)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "left", "page"),
    [
        (SkyplanePlanLink, "return_value", "report"),
        (SkyplaneTransferLink, "return_value", "report"),
        (SkyplaneTransferLink, "failed_transfer", "report"),
        (SkyplaneLineageLink, "lineage", "lineage"),
    ],
)
def test_links_name_the_task_and_its_map_index(
    values: dict[str, Any], kind: type[BaseOperatorLink], left: str, page: str
) -> None:
    values[left] = {"some": "document"}
    parts = urlsplit(link(kind))
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{BASE}/skyplane/{page}"
    assert parse_qs(parts.query) == {name: [str(value)] for name, value in vars(KEY).items()}


@pytest.mark.parametrize(
    "kind", [SkyplanePlanLink, SkyplaneTransferLink, SkyplaneLineageLink, SkyplaneConsoleLink]
)
def test_a_link_is_empty_if_the_task_has_left_nothing(kind: type[BaseOperatorLink]) -> None:
    assert link(kind) == ""


@pytest.mark.parametrize("base", ["", "/"])
def test_without_a_base_url_a_link_begins_with_its_path(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    values["return_value"] = {"some": "document"}
    monkeypatch.setenv(SETTING, base)
    assert link(SkyplanePlanLink).startswith("/skyplane/report?")


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        ({}, ""),
        ({"aws:a": "https://a.test/#x"}, "https://a.test/#x"),
        # Azure has one page for the regions of a fleet.
        ({"azure:a": "https://a.test/", "azure:b": "https://a.test/"}, "https://a.test/"),
    ],
)
def test_the_console_of_a_fleet_in_one_place(
    values: dict[str, Any], urls: dict[str, str], expected: str
) -> None:
    values["return_value"] = {"console_urls": urls}
    assert link(SkyplaneConsoleLink) == expected


def test_a_fleet_in_several_places_leads_to_the_report(values: dict[str, Any]) -> None:
    values["return_value"] = {
        "console_urls": {"aws:a": "https://a.test", "aws:b": "https://b.test"}
    }
    url = link(SkyplaneConsoleLink)
    assert url.startswith(f"{BASE}/skyplane/report?")
    assert url.endswith("#fleet")


def test_a_fleet_of_an_earlier_release_has_no_console(values: dict[str, Any]) -> None:
    values["return_value"] = {"gateways": []}
    assert link(SkyplaneConsoleLink) == ""


def test_airflow_2_can_restore_the_links_of_all_operators() -> None:
    used = {type(one) for operator in OPERATORS for one in operator.operator_extra_links}
    paths = {f"{kind.__module__}.{kind.__qualname__}" for kind in used}
    assert paths == set(get_provider_info()["extra-links"])
