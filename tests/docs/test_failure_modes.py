"""Failure modes: every case has tests that exist, and the defaults are those of the code."""

from __future__ import annotations

import ast
import gc
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.client import Client, FleetTimes
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S
from skyplane_orchestration.recovery.failover_decisions import SILENT_POLLS

REPOSITORY: Final = Path(__file__).resolve().parents[2]
CASES: Final = REPOSITORY / "docs" / "internals" / "failure-modes.md"
PAGE: Final = REPOSITORY / "docs" / "explanation" / "failure-modes.md"

#: Cases that no release goes without.
REQUIRED: Final = (
    "3a",
    *map(str, (*range(1, 7), *range(8, 11), *range(12, 25), 27, *range(30, 44))),
)

#: Issues of Skyplane that are acceptance tests.
REPORTS: Final = ("531", "588", "843", "845", "885", "921")


@dataclass(frozen=True)
class Row:
    number: str
    case: str
    outcome: str
    tests: tuple[str, ...]


def rows() -> list[Row]:
    found = []
    for line in CASES.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if re.fullmatch(r"\d+a?", cells[0]):
            number, case, outcome, tests = cells
            found.append(Row(number, case, outcome, tuple(re.findall(r"`([^`]+)`", tests))))
    return found


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the test functions of a file; those that never run do not count."""
    text = (REPOSITORY / path).read_text()
    # Finalizers of Airflow's database log tracebacks. CPython 3.11 then fails in the middle of
    # a parse: SystemError, "AST constructor recursion depth mismatch".
    gc.disable()
    try:
        tree = ast.parse(text)
    finally:
        gc.enable()
    return frozenset(_tests(tree))


def _tests(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
            if node.name.startswith("test_") and not re.search(
                r"mark\.(skip\(|skip$|xfail)", marks
            ):
                yield node.name


def test_every_case_is_there_once_and_none_is_empty() -> None:
    numbers = [row.number for row in rows()]
    assert len(numbers) == len(set(numbers))
    assert set(REQUIRED) <= set(numbers)
    for row in rows():
        assert row.case
        assert row.outcome
        assert row.tests, f"nothing holds {row.number} ({row.case}) to its outcome"
        assert len(row.tests) == len(set(row.tests))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.number)
def test_what_it_names_are_tests(row: Row) -> None:
    require_tests(row.tests)


def require_tests(nodes: Sequence[str]) -> None:
    """There are some, and each exists."""
    assert nodes
    for node in nodes:
        path, _, name = node.partition("::")
        assert (REPOSITORY / path).is_file(), f"{path} is not there"
        assert name in names_in(path), f"{node} is no test"


def test_reports_about_skyplane_have_tests() -> None:
    found = set()
    for line in CASES.read_text().splitlines():
        if reports := re.findall(r"\[#(\d+)\]", line):
            found |= set(reports)
            tests = re.findall(r"`([^`]+)`", line.strip("|").split("|")[-1])
            require_tests(tests)
    assert found == set(REPORTS)


def test_the_defaults_are_those_of_the_code() -> None:
    found = re.findall(r"^\| `?([a-z_ ]+?)`? \| (\d+) s \|", PAGE.read_text(), re.MULTILINE)
    written = {name: float(seconds) for name, seconds in found}
    config = GatewayConfig("n", "ab" * 16, "h", "h", "/d")
    times = FleetTimes()
    assert written == {
        "poll": inspect.signature(Client).parameters["poll_s"].default,
        "ack_deadline_s": config.ack_deadline_s,
        "stall_deadline_s": config.stalled_after_s,
        "write_timeout_s": config.write_timeout_s,
        "store retry time": RetryPolicy().throttle_s,
        "lease_s": times.lease_s,
        "start_within_s": times.start_within_s,
        "hard_end_s": times.hard_end_s,
        "resume_ttl": RESUME_TTL_S,
    }
    assert f"| poll | 1 s | how often the orchestrator asks the lead; {SILENT_POLLS} polls" in (
        PAGE.read_text()
    )
    assert f"are tried {RetryPolicy().attempts} times" in PAGE.read_text()
