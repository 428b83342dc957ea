"""`forecast`: what it prints and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.planner.conftest import DOZEN

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson

JOBS = """
jobs:
  - {name: lake, src: "aws:ap-northeast-1", dst: "gcp:us-west1", volume_gb: 500, schedule: daily}
  - {name: copy, src: "aws:ap-northeast-1", dst: "azure:westus2", volume_gb: 100}
"""

#: A grid of twelve regions, on which plans are quick; its prices have no tiers.
QUICK = ("--grid", str(DOZEN))


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    return str(file)


def test_the_json_has_the_bill_by_job(run_json: RunJson, jobs: str) -> None:
    found = run_json("forecast", jobs, *QUICK, "--month", "2026-11")
    assert (found["schema_version"], found["month"]) == (1, "2026-11")
    assert [job["name"] for job in found["jobs"]] == ["lake", "copy"]
    assert found["usd"] == pytest.approx(sum(job["usd"] for job in found["jobs"]))
    assert found["jobs"][0]["ways"][0]["name"] == "cheapest"


def test_what_was_sent_before_makes_it_cheaper(run_json: RunJson, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    ends = 'src: "aws:us-east-1", dst: "gcp:us-east4"'
    file.write_text(f"jobs: [{{name: lake, {ends}, volume_gb: 500, schedule: daily}}]")
    first, later = (
        run_json("forecast", str(file), "--month", "2026-11", "--already-this-month", gb)["usd"]
        for gb in ("0", "200000")
    )
    assert later < first * 0.7


@pytest.mark.parametrize("words", [("--month", "2026-11"), ("--month",), ()])
def test_the_table_has_jobs_total_and_alternatives(
    jobs: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forecast", jobs, *QUICK, *words]) == 0
    text = capsys.readouterr().out
    for one in ("lake", "copy", "all", "alternatives", "direct, 1 instance"):
        assert one in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--month", "May"), "month"),
        (("--already-this-month", "-1"), "--already-this-month"),
        (("--already-this-month", "nan"), "--already-this-month"),
        (("--grid", "/no/such/grid"), "grid"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(
    jobs: str, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forecast", jobs, *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


@pytest.mark.parametrize("text", ["jobs: [", "- x", "jobs: [{name: a}]"])
def test_a_bad_file_is_refused_in_one_line(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    assert main(["forecast", str(file)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["forecast", str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
