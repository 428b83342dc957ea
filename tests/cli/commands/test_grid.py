"""`grid`: what is shown of a grid, how a bad one is refused, and how one is made."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.transfer import samples

from skyplane_orchestration.cli.commands.grid import SHOWN_FINDINGS
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson

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


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    directory = tmp_path / "grid"
    directory.mkdir()
    (directory / "grid.json").write_text('{"name": "ours", "as_of": "2026-01-02"}')
    rows = ["src,dst,gbps", "aws:eu-west-1,aws:us-east-1,5.5", "aws:us-east-1,aws:eu-west-1,5.0"]
    (directory / "throughput.csv").write_text("\n".join(rows) + "\n")
    return directory


def test_grids_are_listed_with_their_dates(run_json: RunJson, grid: Path) -> None:
    shipped, ours = run_json("grid", "list", str(grid))["grids"]
    assert (shipped["grid"], shipped["throughput"]) == ("shipped", "modelled")
    assert (ours["name"], ours["as_of"], ours["throughput"]) == ("ours", "2026-01-02", "measured")


def test_show_has_counts_source_and_licence(run_json: RunJson) -> None:
    facts = run_json("grid", "show", "shipped")
    assert {"aws", "gcp", "azure"} <= facts["regions"].keys()
    count = sum(facts["regions"].values())
    assert sum(facts["edges"].values()) == sum(facts["prices"].values()) == count * (count - 1)
    assert facts["source"]
    assert facts["licence"]


def test_show_and_list_as_text(capsys: pytest.CaptureFixture[str], grid: Path) -> None:
    assert main(["grid", "show", str(grid)]) == main(["grid", "list"]) == 0
    output = capsys.readouterr().out
    assert "measured: 2" in output
    assert "aws: 2" in output


def test_one_edge_is_shown_with_the_rule_behind_its_price(
    run_json: RunJson, capsys: pytest.CaptureFixture[str]
) -> None:
    edge = run_json("grid", "show", "shipped", SRC, DST)
    assert (edge["src"], edge["dst"]) == (SRC, DST)
    assert (edge["price"]["billed_usd"], edge["price"]["unit"]) == (0.09, "GiB")
    assert edge["rate"]["provenance"] == "modelled"
    assert main(["grid", "show", "shipped", SRC, DST]) == 0
    shown = capsys.readouterr().out
    for part in ("$0.09 per GiB", "class A to the internet", "2024-09-25", "c6in.xlarge"):
        assert part in shown
    assert "out 5 and in 6.25 Gbit/s sustained (burst: in 30 for 300 s)" in shown


def test_counts_of_a_grid_say_where_its_values_come_from(
    run_json: RunJson, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = run_json("grid", "show", "shipped")["provenance"]
    rates = [one for one in counts if one["value"] == "rate"]
    # Those between the 43 regions of Google Cloud have a later date.
    assert [(one["provenance"], one["count"]) for one in rates] == [
        ("modelled", 136 * 135 - 43 * 42),
        ("modelled", 43 * 42),
    ]
    assert main(["grid", "show", "shipped"]) == 0
    assert "egress price" in capsys.readouterr().out


def test_agreed_prices_are_shown_and_planned_with(run_json: RunJson, tmp_path: Path) -> None:
    file = tmp_path / "agreed.csv"
    file.write_text("edge,usd_per_gb,reason\naws:*>gcp:*,0.001,contract 17\n")
    given = ("--price-overrides", str(file))
    price = run_json("grid", "show", "shipped", SRC, DST, *given)["price"]
    assert (price["usd_per_gb"], price["provenance"]) == (0.001, "override")
    assert price["source"] == "contract 17"
    goal = ("plan", SRC, DST, "--min-throughput-gbps", "2", "--volume-gb", "100")
    agreed, plain = run_json(*goal, *given), run_json(*goal)
    assert agreed["edges"][0]["usd_per_gb"] == 0.001
    assert agreed["cost"]["egress_usd"] == pytest.approx(0.1)
    assert plain["cost"]["egress_usd"] > 8


def test_an_import_is_a_grid_that_can_be_planned_on(
    run_json: RunJson, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ours"
    done = run_json("grid", "import", str(table), "--out", str(out), "--as-of", "2026-01-02")
    assert (done["name"], done["as_of"], done["regions"], done["rates"]) == (
        "ours",
        "2026-01-02",
        2,
        2,
    )
    assert run_json("grid", "validate", str(out))["valid"] is True
    ends = (SRC, "gcp:us-east4")
    assert run_json("grid", "show", str(out), *ends)["rate"]["gbps"] == 4.5
    plan = run_json("plan", *ends, "--grid", str(out), "--min-throughput-gbps", "3")
    assert plan["grid"]["throughput"] == "measured"
    assert main(["grid", "import", str(table), "--out", str(tmp_path / "other")]) == 0
    assert "sha256" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((SRC, DST), "--max-usd is 0"),
        ((SRC, DST, "--max-usd", "nan"), "--max-usd must be a number, not nan"),
        ((SRC,), "two regions or more"),
        ((SRC, DST, SRC), "each given once"),
        ((SRC, "aws:us-east-11"), "has no region 'aws:us-east-11'"),
        ((SRC, DST, "--name", "x", "--out", "/"), "is not empty"),
    ],
)
def test_a_profile_that_cannot_be_made_starts_nothing(
    given: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grid", "profile", "--out", str(tmp_path / "ours"), *given]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert told in lines[-1]
    assert not (tmp_path / "ours").exists()


def test_validate_names_every_bad_row_up_to_a_cap(
    run_json: RunJson, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = 2 * SHOWN_FINDINGS
    rows = ["src,dst,gbps", f"{SRC},{DST},1", *([f"{SRC},{DST},fast"] * bad)]
    (tmp_path / "throughput.csv").write_text("\n".join(rows))
    document = run_json("grid", "validate", str(tmp_path), code=2)
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
    run_json: RunJson, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "throughput.csv").write_text(f"src,dst,gbps\n{SRC},{DST},4000\n")
    document = run_json("grid", "validate", str(tmp_path))
    assert document["valid"] is True
    assert document["warnings_found"] == len(document["warnings"]) == 2
    assert main(["grid", "validate", str(tmp_path)]) == 0
    assert "warning: 1 of 2 pairs: the rate is above" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("import", "none.csv", "--out", "x"), "there is no 'none.csv'"),
        (("import", "{table}"), "--out"),
        (("import", "{table}", "--out", "{folder}"), "is not empty"),
        (("import", "{folder}", "--out", "{folder}/x"), "has no iperf3 result"),
        (("import", "{table}", "--out", "{folder}/x", "--tier", "GOLD"), "unknown tier"),
        (("import", "{table}", "--out", "{folder}/x", "--as-of", "now"), "is not a date"),
    ],
)
def test_a_bad_import_is_one_line_and_exit_2(
    table: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    names = {"table": str(table), "folder": str(table.parent)}
    assert main(["grid", *(part.format(**names) for part in arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert says in shown.err
    assert not (table.parent / "x").exists()


def test_a_bad_row_of_an_import_is_named(run_json: RunJson, table: Path, tmp_path: Path) -> None:
    table.write_text(TABLE + "aws:us-east-1,gcp:us-east1-b,soon\n")
    error = run_json("grid", "import", str(table), "--out", str(tmp_path / "x"), code=2)["error"]
    assert error["message"].startswith("throughput.csv row 4: throughput_recieved is 'soon'")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "aws_us-east-1__gcp_us-east1.json").write_text(json.dumps({"error": "no"}))
    error = run_json("grid", "import", str(tmp_path / "runs"), "--out", "y", code=2)["error"]
    assert error["message"] == "aws_us-east-1__gcp_us-east1.json is a run that failed: no"


# ---------------------------------------------------------------- learn


@pytest.fixture
def result_file(tmp_path: Path) -> Path:
    """The result of a transfer that has measured an edge."""
    now_unix_s = time.time()
    sample = EdgeMeasurement(SRC, DST, 1.25, 64, 1, 30.0, 4_687_500_000, now_unix_s, "achieved")
    file = tmp_path / "result.json"
    file.write_text(json.dumps(samples.result(gateways="aws", measured=(sample,)).to_dict()))
    return file


def test_results_are_learned_once_and_planned_on(
    run_json: RunJson, tmp_path: Path, result_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = str(tmp_path / "ours")
    row = {"result": str(result_file), "learned": [f"{SRC} -> {DST}"], "left_out": ""}
    learn = ("grid", "learn", str(result_file), "--into", into)
    assert run_json(*learn) == {"into": into, "results": [row]}
    again = {**row, "learned": [], "left_out": "its rates are there already"}
    assert run_json(*learn)["results"] == [again]

    rate = run_json("grid", "show", "shipped", SRC, DST, "--learned-grid", into)["rate"]
    assert (rate["gbps"], rate["provenance"], rate["samples"]) == (1.25, "learned", 1)
    assert main(["plan", SRC, DST, "--learned-grid", into]) == 0
    assert "rates of 1 edge: measured here" in capsys.readouterr().out


def test_gateways_of_one_machine_teach_only_if_asked(
    tmp_path: Path, result_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result_file.write_text(result_file.read_text().replace('"aws"', '"local"'))
    learn = ["grid", "learn", str(result_file), "--into", str(tmp_path / "ours")]
    assert main(learn) == 0
    assert "learned nothing, because its gateways were" in capsys.readouterr().out
    assert main([*learn, "--include-local"]) == 0
    assert f"learned {SRC} -> {DST}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("into", "content", "says"),
    [
        ("ftp://host/x", None, "--into"),
        ("ours", "{}", "a transfer result"),
        ("ours", "[]", "is not a JSON object"),
    ],
)
def test_what_cannot_be_learned_is_bad_input(
    tmp_path: Path,
    result_file: Path,
    capsys: pytest.CaptureFixture[str],
    into: str,
    content: str | None,
    says: str,
) -> None:
    if content is not None:
        result_file.write_text(content)
    place = into if "://" in into else str(tmp_path / into)
    assert main(["grid", "learn", str(result_file), "--into", place]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_a_learned_grid_that_cannot_be_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", SRC, DST, "--learned-grid", __file__]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--learned-grid" in line
