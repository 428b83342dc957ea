"""The page on Airflow: its code runs, and it names what exists."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.operators import SkyplaneSweepOperator
from skyplane_orchestration.operators.job import JobArguments
from skyplane_orchestration.provider_info import CONNECTION_FIELDS


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "reference" / "operators.md").read_text(encoding="utf-8")


def test_its_code_makes_the_dag_that_its_table_describes(page: str) -> None:
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    tasks = [name.removeprefix("copy.") for name in sorted(names["copy"].children)]
    assert tasks == sorted(re.findall(r"^\| `(\w+)` \| .* \| .*\|$", page, re.MULTILINE)[:5])


def test_the_nightly_sweep_is_a_dag(page: str) -> None:
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1]
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["sweep"].dag.dag_id == "skyplane_sweep"
    assert names["sweep"].destinations == ["s3://example-paris/events/"]
    arguments = inspect.signature(SkyplaneSweepOperator).parameters
    for name in re.findall(r"`(\w+)=", page.partition("`SkyplaneSweepOperator` removes")[2]):
        assert name in arguments, name


def test_fields_and_arguments_exist(page: str) -> None:
    connections = page.partition("## Connections")[2]
    for row in re.findall(r"^\| (`[^|]*) \|", connections, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", row):
            assert name in CONNECTION_FIELDS, name
    arguments = page.partition("## What to move")[2].partition("## Failures")[0]
    for row in re.findall(r"^\| (`[^|]*) \|", arguments, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", row):
            assert name in {*JobArguments.__annotations__, "manifest"}, name
