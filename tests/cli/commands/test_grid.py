"""`grid`: what is shown of a grid, how a bad one is refused, and how one is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.cli.commands.grid import SHOWN_FINDINGS
from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.cli.conftest import Answer

TABLE = (
    "src_region,dst_region,throughput_recieved\n"
    "aws:us-east-1,gcp:us-east4-a,4500000000\ngcp:us-east4-a,aws:us-east-1,2000000000\n"
)
SRC, DST = "aws:us-east-1", "gcp:us-east1"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "throughput.csv"
    file.write_text(TABLE)
    return file


def test_one_edge_is_shown_with_the_rule_behind_its_price(
    answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    edge = answer("grid", "show", "shipped", SRC, DST)
    assert (edge["src"], edge["dst"]) == (SRC, DST)
    assert (edge["price"]["billed_usd"], edge["price"]["unit"]) == (0.09, "GiB")
    assert edge["rate"]["provenance"] == "modelled"
    assert main(["grid", "show", "shipped", SRC, DST]) == 0
    shown = capsys.readouterr().out
    for part in ("$0.09 per GiB", "class A to the internet", "2024-09-25", "c6in.xlarge"):
        assert part in shown


def test_counts_of_a_grid_say_where_its_values_come_from(
    answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = answer("grid", "show", "shipped")["provenance"]
    rates = [one for one in counts if one["value"] == "rate"]
    assert [(one["provenance"], one["count"]) for one in rates] == [("modelled", 135 * 134)]
    assert main(["grid", "show", "shipped"]) == 0
    assert "egress price" in capsys.readouterr().out


def test_agreed_prices_are_shown_and_planned_with(answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / "agreed.csv"
    file.write_text("edge,usd_per_gb,reason\naws:*>gcp:*,0.001,contract 17\n")
    given = ("--price-overrides", str(file))
    price = answer("grid", "show", "shipped", SRC, DST, *given)["price"]
    assert (price["usd_per_gb"], price["provenance"]) == (0.001, "override")
    assert price["source"] == "contract 17"
    goal = ("plan", SRC, DST, "--min-throughput-gbps", "2", "--volume-gb", "100")
    agreed, plain = answer(*goal, *given), answer(*goal)
    assert agreed["edges"][0]["usd_per_gb"] == 0.001
    assert agreed["cost"]["egress_usd"] == pytest.approx(0.1)
    assert plain["cost"]["egress_usd"] > 8


def test_an_import_is_a_grid_that_can_be_planned_on(
    answer: Answer, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ours"
    done = answer("grid", "import", str(table), "--out", str(out), "--as-of", "2026-01-02")
    assert (done["name"], done["as_of"], done["regions"], done["rates"]) == (
        "ours",
        "2026-01-02",
        2,
        2,
    )
    assert answer("grid", "validate", str(out))["valid"] is True
    ends = (SRC, "gcp:us-east4")
    assert answer("grid", "show", str(out), *ends)["rate"]["gbps"] == 4.5
    plan = answer("plan", *ends, "--grid", str(out), "--min-throughput-gbps", "3")
    assert plan["grid"]["throughput"] == "measured"
    assert main(["grid", "import", str(table), "--out", str(tmp_path / "other")]) == 0
    assert "sha256" in capsys.readouterr().out


def test_validate_names_every_bad_row_up_to_a_cap(
    answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = 2 * SHOWN_FINDINGS
    rows = ["src,dst,gbps", f"{SRC},{DST},1", *([f"{SRC},{DST},fast"] * bad)]
    (tmp_path / "throughput.csv").write_text("\n".join(rows))
    document = answer("grid", "validate", str(tmp_path), code=2)
    assert document["valid"] is False
    assert document["errors_found"] == bad
    assert [one["row"] for one in document["errors"]] == list(range(3, 3 + SHOWN_FINDINGS))
    assert document["error"]["code"] == "grid-invalid"
    assert main(["grid", "validate", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.out.count("error: throughput.csv row ") == SHOWN_FINDINGS
    assert f"... and {bad - SHOWN_FINDINGS} more" in shown.out
    assert shown.err.count("\n") == 1


def test_warnings_do_not_fail_a_grid(
    answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "throughput.csv").write_text(f"src,dst,gbps\n{SRC},{DST},4000\n")
    document = answer("grid", "validate", str(tmp_path))
    assert document["valid"] is True
    assert document["warnings_found"] == len(document["warnings"]) == 2
    assert main(["grid", "validate", str(tmp_path)]) == 0
    assert "warning: 1 of 2 pairs: the rate is above" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "shipped", SRC), "an edge has two ends"),
        (("show", "shipped", SRC, "gcp:us-eats1"), "did you mean gcp:us-east1"),
        (("show", "shipped", "--price-overrides", "none.csv"), "no file of price overrides"),
        (("show", "nowhere"), "no grid 'nowhere'"),
        (("validate", "nowhere"), "no grid 'nowhere'"),
        (("import", "none.csv", "--out", "x"), "there is no 'none.csv'"),
        (("import", "{table}"), "--out"),
        (("import", "{table}", "--out", "{folder}"), "is not empty"),
        (("import", "{folder}", "--out", "{folder}/x"), "has no iperf3 result"),
        (("import", "{table}", "--out", "{folder}/x", "--tier", "GOLD"), "unknown tier"),
        (("import", "{table}", "--out", "{folder}/x", "--as-of", "now"), "is not a date"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    table: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    names = {"table": str(table), "folder": str(table.parent)}
    assert main(["grid", *(part.format(**names) for part in arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert says in shown.err
    assert not (table.parent / "x").exists()


def test_a_bad_row_of_an_import_is_named(answer: Answer, table: Path, tmp_path: Path) -> None:
    table.write_text(TABLE + "aws:us-east-1,gcp:us-east1-b,soon\n")
    error = answer("grid", "import", str(table), "--out", str(tmp_path / "x"), code=2)["error"]
    assert error["message"].startswith("throughput.csv row 4: throughput_recieved is 'soon'")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "aws_us-east-1__gcp_us-east1.json").write_text(json.dumps({"error": "no"}))
    error = answer("grid", "import", str(tmp_path / "runs"), "--out", "y", code=2)["error"]
    assert error["message"] == "aws_us-east-1__gcp_us-east1.json is a run that failed: no"
