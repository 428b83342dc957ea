"""Executors that may run the tasks of a local fleet on several machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.operators.conftest import FakeHook

from skyplane_orchestration.operators import SkyplanePlanOperator
from skyplane_orchestration.operators.plan import remote_executor

ENDS: dict[str, Any] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}


@pytest.mark.parametrize(
    ("configured", "wanted", "remote"),
    [
        ("LocalExecutor", None, ""),
        ("SequentialExecutor", None, ""),
        ("CeleryExecutor", None, "CeleryExecutor"),
        ("airflow.providers.edge3.executors.EdgeExecutor", None, "EdgeExecutor"),
        ("LocalExecutor,KubernetesExecutor", None, ""),
        ("LocalExecutor, KubernetesExecutor", "KubernetesExecutor", "KubernetesExecutor"),
        ("CeleryExecutor,here:my.company.LocalExecutor", "here", ""),
        ("LocalExecutor,far:my.company.FarExecutor", "far", "FarExecutor"),
        ("LocalExecutor;team=CeleryExecutor", None, ""),
    ],
)
def test_the_executor_of_a_task(
    monkeypatch: pytest.MonkeyPatch, configured: str, wanted: str | None, remote: str
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", configured)
    assert remote_executor(wanted) == remote


@pytest.mark.parametrize(
    ("executor", "provisioner", "warns"),
    [
        ("CeleryExecutor", "local", True),
        ("CeleryExecutor", "cloud", False),
        ("LocalExecutor", "local", False),
    ],
)
def test_the_first_task_warns_of_what_the_transfer_would_fail_with(
    hook: FakeHook,
    context: Any,
    task_log: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    executor: str,
    provisioner: str,
    warns: bool,
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    hook.client(context, "default").provisioner_name = provisioner
    SkyplanePlanOperator(task_id="plan", **ENDS).execute(context)
    assert (f"{executor} may run the next tasks on another one" in task_log()) == warns
