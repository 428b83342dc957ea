"""`grid` and `doctor`: looks that change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.cli.conftest import Answer


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    directory = tmp_path / "grid"
    directory.mkdir()
    (directory / "grid.json").write_text('{"name": "ours", "as_of": "2026-01-02"}')
    rows = ["src,dst,gbps", "aws:eu-west-1,aws:us-east-1,5.5", "aws:us-east-1,aws:eu-west-1,5.0"]
    (directory / "throughput.csv").write_text("\n".join(rows) + "\n")
    return directory


def test_grids_are_listed_with_their_dates(answer: Answer, grid: Path) -> None:
    shipped, ours = answer("grid", "list", str(grid))["grids"]
    assert (shipped["grid"], shipped["throughput"]) == ("shipped", "modelled")
    assert (ours["name"], ours["as_of"], ours["throughput"]) == ("ours", "2026-01-02", "measured")


def test_a_grid_shows_where_it_comes_from(answer: Answer) -> None:
    facts = answer("grid", "show", "shipped")
    assert {"aws", "gcp", "azure"} <= facts["regions"].keys()
    count = sum(facts["regions"].values())
    assert sum(facts["edges"].values()) == sum(facts["prices"].values()) == count * (count - 1)
    assert facts["source"]
    assert facts["licence"]


def test_a_grid_for_people(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    assert main(["grid", "show", str(grid)]) == main(["grid", "list"]) == 0
    output = capsys.readouterr().out
    assert "measured: 2" in output
    assert "aws: 2" in output


def test_a_bad_row_is_named(answer: Answer, grid: Path) -> None:
    assert answer("grid", "validate", str(grid))["valid"] is True
    with (grid / "throughput.csv").open("a") as file:
        file.write("aws:eu-west-1,aws:us-east-1,fast\n")
    error = answer("grid", "validate", str(grid), code=2)["error"]
    assert error["code"] == "grid-invalid"
    assert error["message"].startswith("throughput.csv row 4: ")
    assert answer("grid", "show", "nowhere", code=2)["error"]["code"] == "grid-invalid"


def test_the_doctor_finds_this_machine_well(
    answer: Answer, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not to be shown")
    checks = {check["name"]: check for check in answer("doctor")["checks"]}
    for name in ("python", "gateway", "fleet secret", "run root", "grid", "solver", "loopback"):
        assert checks[name]["state"] == "ok", checks[name]
    assert checks["S3 credentials"]["detail"] == "long-lived ones found"
    assert "AKID" not in str(checks)
    assert not list((private_home / "run").iterdir())
    assert not list((private_home / "config").iterdir())


def test_the_doctor_finds_a_secret_that_others_can_read(
    answer: Answer, private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = private_home / "config" / "skyplane-orch" / "secret"
    secret.parent.mkdir()
    secret.write_text("0" * 64)
    secret.chmod(0o644)
    checks = {check["name"]: check for check in answer("doctor", code=1)["checks"]}
    assert checks["fleet secret"]["state"] == "fail"
    assert "chmod 600" in checks["fleet secret"]["detail"]
    assert main(["doctor", "--grid", "/nowhere"]) == 1
    assert "0000" not in capsys.readouterr().out
