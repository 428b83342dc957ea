"""`plan`: what it prints, what it refuses, what it draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.plan import TransferPlan

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"


def test_the_json_is_the_plan_itself(run_json: RunJson) -> None:
    document = run_json("plan", SRC, DST, "--min-throughput-gbps", "10", "--volume-gb", "50")
    plan = TransferPlan.from_dict(document)
    assert plan.to_dict() == document
    assert (plan.src, plan.dst, plan.volume_gb) == (SRC, DST, 50.0)
    assert plan.throughput_gbps >= 10
    assert plan.objective == {
        "kind": "minimize-cost",
        "min_throughput_gbps": 10.0,
        "exactly": False,
        "value_of_time_usd_per_hour": 0.0,
    }


def test_limits_reach_the_planner(run_json: RunJson) -> None:
    common = ("plan", SRC, DST, "--min-throughput-gbps", "3.5", "--instance-limit", "1")
    free = TransferPlan.from_dict(run_json(*common))
    assert free.relays
    narrow = TransferPlan.from_dict(
        run_json(*common, "--exclude-regions", ",".join(free.relays), "--exactly", "--relays", "4")
    )
    assert narrow.relays
    assert set(narrow.relays).isdisjoint(free.relays)
    assert narrow.throughput_gbps == pytest.approx(3.5)
    assert {group.count for group in narrow.instances.values()} == {1}
    only = run_json(
        "plan", SRC, DST, "--min-throughput-gbps", "2.8", "--instance-limit", "1",
        "--allow-regions", "aws:us-*", "--instance-type", "aws=m5.8xlarge",
    )  # fmt: skip
    plan = TransferPlan.from_dict(only)
    assert plan.relays
    assert all(tag.startswith("aws:us-") for tag in plan.relays)
    assert {group.type for group in plan.instances.values()} == {"m5.8xlarge"}


@pytest.mark.parametrize("option", ["--already-this-month", "--already-this-month-gb"])
def test_the_volume_of_the_month_reaches_the_prices(run_json: RunJson, option: str) -> None:
    common = ("plan", "aws:us-east-1", "gcp:us-east4", "--min-throughput-gbps", "3")
    first, later = (
        run_json(*common, "--volume-gb", "10", "--relays", "0", option, text)["edges"][0]
        for text in ("0", "200000")
    )
    assert later["usd_per_gb"] / first["usd_per_gb"] == pytest.approx(0.05 / 0.09)


@pytest.mark.parametrize("text", ["-1", "much", "nan", "inf"])
def test_a_volume_of_the_month_that_is_none_is_refused_in_one_line(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", SRC, DST, "--min-throughput-gbps", "3", f"--already-this-month={text}"]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "--already-this-month" in error


def test_locations_with_regions_and_volume_need_no_store(run_json: RunJson) -> None:
    plan = TransferPlan.from_dict(
        run_json(
            "plan", "s3://a/x/", "gs://b/y/", "--src-region", SRC, "--dst-region",
            "gcp:europe-west1", "--volume-gb", "10", "--objects", "4",
        )
    )  # fmt: skip
    assert (plan.src, plan.dst, plan.volume_gb) == (SRC, "gcp:europe-west1", 10.0)
    assert plan.cost.total_usd is not None


def test_the_volume_of_files_is_listed(run_json: RunJson, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"12345")
    for source in (tmp_path / "one", tmp_path):
        plan = run_json("plan", str(source), str(tmp_path.parent / "elsewhere"))
        assert plan["volume_gb"] >= 5e-9
        assert plan["edges"] == []


def test_the_text_has_the_plan_and_its_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", SRC, DST, "--min-throughput-gbps", "3.5", "--volume-gb", "10"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    for word in (SRC, DST, "Gbit/s", "per GB", "10 GB", "egress", "boot", "shipped", "modelled"):
        assert word in output.out


def test_the_plot_is_a_picture_of_the_plan(run_json: RunJson, tmp_path: Path) -> None:
    file = tmp_path / "map.svg"
    document = run_json(
        "plan", SRC, DST, "--min-throughput-gbps", "3.5", "--instance-limit", "1",
        "--plot", str(file),
    )  # fmt: skip
    words = "".join(ElementTree.fromstring(file.read_text(encoding="utf-8")).itertext())
    assert len(document["instances"]) > 2
    assert all(tag.partition(":")[2] in words for tag in document["instances"])


def test_explain_adds_sentences_to_the_plan(
    run_json: RunJson, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = "--min-throughput-gbps 3 --instance-limit 1 --relays 1"
    common = ("plan", SRC, DST, *limits.split())
    document = run_json(*common, "--explain")
    sentences = document.pop("explanation")
    plan = TransferPlan.from_dict(document)
    assert len(plan.relays) == 1
    assert any(sentence.startswith(plan.relays[0]) for sentence in sentences)
    assert "10 % more money" in sentences[-1]
    assert "explanation" not in run_json(*common)
    assert main([*common, "--explain"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-len(sentences) :] == sentences


def test_a_file_is_an_end_by_its_path_and_its_gateways_are_processes_here(
    tmp_path: Path, run_json: RunJson, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").write_bytes(b"x" * 1000)
    ends = f"{tmp_path}/", "s3://bucket/there/", "--dst-region", "aws:eu-west-1"
    plan = TransferPlan.from_dict(run_json("plan", *ends))
    (group,) = plan.instances.values()
    assert (group.type, group.usd_per_hour) == ("process", 0.0)
    assert any("is on this machine" in note for note in plan.notes)
    assert main(["plan", *ends]) == 0
    printed = capsys.readouterr().out
    assert f"from        {tmp_path}/" in printed
    assert "c7gn" not in printed
