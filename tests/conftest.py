"""Fixtures for every test: the repository and the reference data beside it."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

# Airflow makes files in its home when it is first imported, by whichever test that is.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-home-")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_dir(repository: Path) -> Path:
    """The folder `shared` beside the repository: measurements to compare with."""
    folder = repository.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference data (a folder `shared` beside the repository) is not here")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which seeds the random schedules had, so that a log tells how to run them again."""
    ran = {
        tuple(value)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, value in getattr(report, "user_properties", ())
        if name == "schedule seeds"
    }
    spans: list[list[int]] = []
    for first, last in sorted(ran):
        if spans and first == spans[-1][1] + 1:
            spans[-1][1] = last
        else:
            spans.append([first, last])
    for first, last in spans:
        terminalreporter.write_line(f"schedules: seeds {first}..{last}")
