"""`frontier`: the plans from the cheapest to the fastest, and what they are compared with."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import best_relay, direct, violations

if TYPE_CHECKING:
    from tests.cli.conftest import Answer

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"
MARKS = ("direct_1", "direct_n", "ron_1", "ron_n")
QUICK = ("--points", "4", "--instance-limit", "1")


def test_every_plan_of_the_json_holds_and_is_faster_and_dearer(answer: Answer) -> None:
    document = answer("frontier", SRC, DST, *QUICK, "--volume-gb", "50", "--objects", "9")
    assert list(document) == [
        "schema_version", "src", "dst", "points", "relaxed", "chosen", *MARKS,
    ]  # fmt: skip
    assert (document["schema_version"], document["src"], document["dst"]) == (1, SRC, DST)
    plans = [TransferPlan.from_dict(point) for point in document["points"]]
    assert 1 < len(plans) <= 4
    grid = load_grid()
    for slow, fast in pairwise(plans):
        assert slow.throughput_gbps < fast.throughput_gbps
        assert slow.cost.usd_per_gb < fast.cost.usd_per_gb
    for one in plans:
        assert violations(one, grid, Limits(instance_limit=1)) == []
        assert one.volume_gb == 50.0
        assert one.cost.total_usd is not None


def test_it_is_compared_with_one_instance_per_region_and_with_all(answer: Answer) -> None:
    limit = ("--points", "2", "--instance-limit", "3")
    document = answer("frontier", SRC, DST, *limit)
    grid, limits = load_grid(), Limits(instance_limit=3)
    for name, way in (("direct", direct), ("ron", best_relay)):
        for suffix, count in (("1", 1), ("n", 3)):
            shown = TransferPlan.from_dict(document[f"{name}_{suffix}"])
            made = way(grid, SRC, DST, count, limits=limits)
            assert (shown.objective["kind"], shown.paths) == (name, made.paths)
            assert shown.cost == made.cost
            assert {group.count for group in shown.instances.values()} == {count}


def test_no_plan_lies_below_the_relaxed_breakpoints(answer: Answer) -> None:
    document = answer("frontier", SRC, DST, *QUICK)
    relaxed = [(one["throughput_gbps"], one["usd_per_gb"]) for one in document["relaxed"]]
    assert relaxed == sorted(relaxed)
    for point in document["points"]:
        below = [price for gbps, price in relaxed if gbps <= point["throughput_gbps"]]
        assert point["cost"]["usd_per_gb"] >= max(below, default=0.0) * (1 - 1e-6)
        assert point["solver"]["bound"] >= max(below, default=0.0) * (1 - 1e-6)
    assert document["points"][-1]["throughput_gbps"] <= relaxed[-1][0] * (1 + 1e-6)


@pytest.mark.parametrize(
    "objective",
    [
        ("--min-throughput-gbps", "2"),
        ("--min-throughput-gbps", "2", "--exactly"),
        ("--max-usd-per-gb", "1"),
        ("--deadline-s", "900", "--volume-gb", "50"),
        ("--max-cost-usd", "40", "--volume-gb", "50"),
    ],
)
def test_the_plan_of_an_objective_is_marked(
    answer: Answer, tmp_path: Path, objective: tuple[str, ...]
) -> None:
    file = tmp_path / "chart.svg"
    limit = ("--instance-limit", "1", "--points", "2")
    document = answer("frontier", SRC, DST, *limit, *objective, "--plot", str(file))
    asked = answer("plan", SRC, DST, "--instance-limit", "1", *objective)
    assert document["chosen"]["throughput_gbps"] == pytest.approx(asked["throughput_gbps"])
    assert document["chosen"]["objective"] == asked["objective"]
    words = "".join(ElementTree.fromstring(file.read_text(encoding="utf-8")).itertext())
    assert f"chosen: {asked['throughput_gbps']:.2f} Gbit/s" in words


def test_a_proof_may_be_left_out(answer: Answer) -> None:
    quick = ("--relays", "0", "--points", "2", "--min-throughput-gbps", "2")
    document = answer("frontier", SRC, DST, *quick, "--prove-s", "0")
    asked = answer("plan", SRC, DST, "--relays", "0", *quick[4:], "--prove-s", "0")
    assert document["chosen"]["edges"] == asked["edges"]


def test_nothing_is_chosen_without_an_objective(answer: Answer) -> None:
    assert answer("frontier", SRC, DST, *QUICK)["chosen"] is None


def test_the_policy_reaches_the_planner(answer: Answer) -> None:
    document = answer("frontier", SRC, DST, *QUICK, "--allow", "aws:us-*", "--relays", "1")
    relays = [TransferPlan.from_dict(point).relays for point in document["points"]]
    assert max(len(tags) for tags in relays) == 1
    assert all(tag.startswith("aws:us-") for tags in relays for tag in tags)


def test_inside_one_region_there_is_one_plan_and_nothing_beside_it(
    answer: Answer, tmp_path: Path
) -> None:
    file = tmp_path / "chart.svg"
    document = answer("frontier", SRC, SRC, "--plot", str(file))
    assert len(document["points"]) == 1
    assert [document[name] for name in MARKS] == [None] * 4
    assert (document["relaxed"], document["chosen"]) == ([], None)
    ElementTree.fromstring(file.read_text(encoding="utf-8"))


def test_places_with_regions_need_no_cloud(answer: Answer) -> None:
    document = answer(
        "frontier", "s3://a/x/", "gs://b/y/", "--src-region", SRC, "--dst-region",
        "gcp:europe-west1", "--points", "2", "--instance-limit", "1",
        "--min-throughput-gbps", "1",
    )  # fmt: skip
    assert (document["src"], document["dst"]) == (SRC, "gcp:europe-west1")
    assert document["chosen"]["src"] == SRC
    assert document["points"][0]["volume_gb"] is None


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", SRC, DST, *QUICK, "--volume-gb", "100"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    for word in ("Gbit/s", "USD per GB", "relays", "none", "gap", "direct, 1", "RON, 1"):
        assert word in output.out


def test_the_plot_has_every_plan_and_both_marks(answer: Answer, tmp_path: Path) -> None:
    file = tmp_path / "chart.svg"
    document = answer("frontier", SRC, DST, *QUICK, "--plot", str(file))
    words = "".join(ElementTree.fromstring(file.read_text(encoding="utf-8")).itertext())
    for point in document["points"]:
        assert f"{point['throughput_gbps']:.2f} Gbit/s" in words
    for name, title in (("direct_1", "direct, 1 instance"), ("ron_1", "RON, 1 instance")):
        assert title in words
        assert f": {document[name]['throughput_gbps']:.2f} Gbit/s" in words


@pytest.mark.parametrize(
    ("arguments", "clue"),
    [
        ((SRC, DST, "--points", "1"), "--points"),
        ((SRC, DST, "--points", "201"), "2 to 200"),
        ((SRC, DST, "--points", "few"), "2 to 200"),
        ((SRC, "aws:eu-west-99"), "did you mean aws:eu-west-"),
        ((SRC, DST, "--volume-gb", "nan"), "--volume-gb"),
        ((SRC, DST, "--instance-limit", "0"), "--instance-limit"),
        ((SRC, DST, "--exclude", "aws:nowhere-*"), "--exclude"),
        ((SRC, DST, "--dst-region", DST), "--dst-region"),
        ((SRC, DST, "--plot", "/nowhere/chart.svg"), "/nowhere/chart.svg"),
        ((SRC, DST, "--min-throughput-gbps", "1e6", "--relays", "0"), "the most is"),
        ((SRC, DST, "--max-cost-usd", "5"), "needs a volume"),
        ((SRC, DST, "--exactly"), "--exactly belongs to"),
        ((SRC, "s3://bucket/"), "two places"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], clue: str
) -> None:
    assert main(["frontier", *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("skyplane-orch: ")
    assert output.err.count("\n") == 1
    assert clue in output.err
