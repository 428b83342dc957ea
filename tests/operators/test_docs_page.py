"""The pages on Airflow describe the tasks and arguments that exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.operators import SkyplaneSweepOperator
from skyplane_orchestration.operators.job_arguments import TYPES


@pytest.fixture
def docs(repository: Path) -> Path:
    return repository / "docs"


def names_of_first_block(page: Path) -> dict[str, Any]:
    """Runs the first Python block of a page."""
    code = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    return names


@pytest.mark.parametrize("page", ["getting-started/airflow.md", "reference/operators.md"])
def test_the_table_of_tasks_is_that_of_the_first_dag(docs: Path, page: str) -> None:
    dag = names_of_first_block(docs / "getting-started" / "airflow.md")["dag"]
    tasks = sorted(name.removeprefix("copy.") for name in dag.task_ids)
    rows = re.findall(r"^\| `(\w+)` \| .* \|$", (docs / page).read_text(), re.MULTILINE)
    assert tasks == sorted(rows[:5])


def test_the_nightly_sweep_is_a_dag(docs: Path) -> None:
    page = docs / "how-to" / "sweep.md"
    sweep = names_of_first_block(page)["sweep"]
    assert sweep.dag.dag_id == "skyplane_sweep"
    assert sweep.destinations == ["s3://example-paris/events/"]
    arguments = inspect.signature(SkyplaneSweepOperator).parameters
    section = page.read_text().partition("## As a DAG")[2].partition("##")[0]
    for name in re.findall(r"`(\w+)=", section):
        assert name in arguments, name


def test_arguments_exist(docs: Path) -> None:
    page = (docs / "reference" / "operators.md").read_text(encoding="utf-8")
    arguments = page.partition("## What to move")[2].partition("## Failures")[0]
    for row in re.findall(r"^\| (`[^|]*) \|", arguments, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", row):
            assert name in {*TYPES, "manifest"}, name
