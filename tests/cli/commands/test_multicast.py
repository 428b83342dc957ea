"""`plan` with several destinations: what it prints, what it refuses, what it draws."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.plan import TransferPlan

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson

SRC, DST, FURTHER = "gcp:us-east4", "aws:ap-southeast-1", "aws:ap-northeast-1"


def test_the_json_is_the_plan_itself(run_json: RunJson) -> None:
    document = run_json(
        "plan", SRC, DST, FURTHER, "--min-throughput-gbps", "3", "--volume-gb", "50"
    )
    plan = TransferPlan.from_dict(document)
    assert plan.to_dict() == document
    assert (plan.src, plan.destinations, plan.volume_gb) == (SRC, (DST, FURTHER), 50.0)
    assert plan.throughput_gbps >= 3
    assert plan.separate_usd_per_gb is not None
    assert plan.separate_usd_per_gb > plan.cost.usd_per_gb


def test_limits_reach_the_planner(run_json: RunJson) -> None:
    plan = TransferPlan.from_dict(
        run_json(
            "plan", SRC, DST, FURTHER, "--min-throughput-gbps", "2", "--exactly", "--relays", "0",
            "--instance-limit", "2", "--instance-type", "aws=m5.8xlarge",
        )
    )  # fmt: skip
    assert plan.relays == ()
    assert plan.throughput_gbps == pytest.approx(2.0)
    assert plan.instances[DST].type == "m5.8xlarge"


def test_without_an_objective_it_is_the_rate_of_the_slowest_direct_path(run_json: RunJson) -> None:
    plan = TransferPlan.from_dict(run_json("plan", SRC, DST, FURTHER))
    floors = [
        run_json("plan", SRC, tag)["objective"]["min_throughput_gbps"] for tag in (DST, FURTHER)
    ]
    assert plan.objective["min_throughput_gbps"] == pytest.approx(min(floors))


@pytest.mark.parametrize(
    ("arguments", "code", "clue"),
    [
        ((SRC, DST, DST), "configuration-invalid", "more than once"),
        ((SRC, DST, SRC), "configuration-invalid", "is the source"),
        ((SRC, DST, FURTHER, "--explain"), "configuration-invalid", "--explain"),
        ((SRC, DST, FURTHER, "--dst-endpoint", "http://x"), "configuration-invalid", "--dst-"),
        ((SRC, DST, FURTHER, "--min-throughput-gbps", "1e6"), "plan-infeasible", "the most"),
        (
            ("gs://a/", "s3://b/", "s3://c/", "--dst-region", DST),
            "configuration-invalid",
            "--dst-region is for one destination",
        ),
    ],
)
def test_what_cannot_be_planned(
    run_json: RunJson, arguments: tuple[str, ...], code: str, clue: str
) -> None:
    error = run_json("plan", *arguments, code=2)["error"]
    assert (error["code"], error["is_permanent"]) == (code, True)
    assert clue in error["message"]


def test_a_copy_goes_to_one_destination(run_json: RunJson) -> None:
    error = run_json("cp", "gs://a/", "s3://b/", "s3://c/", code=2)["error"]
    assert "s3://c/" in error["message"]


def test_the_text_has_the_plan_and_its_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", SRC, DST, FURTHER, "--min-throughput-gbps", "3", "--volume-gb", "9"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    for word in (SRC, DST, FURTHER, "of source data", "separate", "saves", "tree", "9 GB"):
        assert word in output.out


def test_the_plot_shows_every_destination(run_json: RunJson, tmp_path: Path) -> None:
    file = tmp_path / "map.svg"
    document = run_json(
        "plan", SRC, DST, FURTHER, "--min-throughput-gbps", "3", "--plot", str(file)
    )
    words = "".join(ElementTree.fromstring(file.read_text(encoding="utf-8")).itertext())
    assert words.count("(sink)") == 2
    assert words.count("(source)") == 1
    assert all(tag.partition(":")[2] in words for tag in document["instances"])
