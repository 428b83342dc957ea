"""`frontier`: the plans from the cheapest to the fastest, and what they are compared with."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import violations

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"
BASELINES = ("direct_1", "direct_n", "ron_1", "ron_n")
QUICK = ("--points", "2", "--instance-limit", "1", "--relays", "1")
LIMITS = ("--instance-limit", "1", "--volume-gb", "50", "--objects", "9")
ASKED = (*LIMITS, "--min-throughput-gbps", "2")


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("frontier") / "chart.svg"


@pytest.fixture(scope="module")
def document(chart: Path) -> dict[str, Any]:
    """One frontier of up to 4 plans, which several tests read."""
    output = io.StringIO()
    with redirect_stdout(output):
        arguments = ["frontier", SRC, DST, "--points", "4", *ASKED, "--plot", str(chart)]
        assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(output.getvalue())
    return found


def test_every_plan_of_the_json_holds_and_is_faster_and_dearer(document: dict[str, Any]) -> None:
    assert list(document) == [
        "schema_version", "src", "dst", "knee", "points", "relaxed", "chosen", *BASELINES,
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


def test_the_plan_of_an_objective_is_listed_as_chosen(
    run_json: RunJson, document: dict[str, Any]
) -> None:
    plan = run_json("plan", SRC, DST, *ASKED)
    assert document["chosen"]["throughput_gbps"] == pytest.approx(plan["throughput_gbps"])
    assert document["chosen"]["objective"] == plan["objective"]


def test_the_chart_has_every_plan_the_chosen_one_and_the_baselines(
    document: dict[str, Any], chart: Path
) -> None:
    text = "".join(ElementTree.fromstring(chart.read_text(encoding="utf-8")).itertext())
    for point in document["points"]:
        assert f"{point['throughput_gbps']:.2f} Gbit/s" in text
    assert f"chosen: {document['chosen']['throughput_gbps']:.2f} Gbit/s" in text
    for name, title in (("direct_1", "direct, 1 instance"), ("ron_1", "RON, 1 instance")):
        assert title in text
        assert f": {document[name]['throughput_gbps']:.2f} Gbit/s" in text


def test_the_policy_reaches_the_planner(run_json: RunJson) -> None:
    document = run_json("frontier", SRC, DST, *QUICK, "--allow-regions", "aws:us-*")
    relays = [TransferPlan.from_dict(point).relays for point in document["points"]]
    assert max(len(tags) for tags in relays) == 1
    assert all(tag.startswith("aws:us-") for tags in relays for tag in tags)


def test_inside_one_region_there_is_one_plan_and_nothing_beside_it(
    run_json: RunJson, tmp_path: Path
) -> None:
    file = tmp_path / "chart.svg"
    document = run_json("frontier", SRC, SRC, "--plot", str(file))
    assert len(document["points"]) == 1
    assert [document[name] for name in BASELINES] == [None] * 4
    assert (document["relaxed"], document["chosen"]) == ([], None)
    ElementTree.fromstring(file.read_text(encoding="utf-8"))


def test_locations_with_regions_need_no_store(run_json: RunJson) -> None:
    document = run_json(
        "frontier", "s3://a/x/", "gs://b/y/", "--src-region", SRC, "--dst-region",
        "gcp:europe-west1", *QUICK, "--relays", "0", "--min-throughput-gbps", "1",
    )  # fmt: skip
    assert (document["src"], document["dst"]) == (SRC, "gcp:europe-west1")
    assert document["chosen"]["src"] == SRC
    assert document["points"][0]["volume_gb"] is None


def test_the_text_has_every_plan_and_the_baselines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", SRC, DST, *QUICK, "--volume-gb", "100"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    for word in ("Gbit/s", "USD per GB", "relays", "none", "gap", "direct, 1", "RON, 1"):
        assert word in output.out
