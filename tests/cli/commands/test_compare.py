"""`compare`: what it prints, and that places are compared by what is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.storage import preflight

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"
PLANS = [
    "knee", "cheapest", "fastest_at_ceiling", "fastest", "direct_1", "direct_n", "ron_1", "ron_n",
]  # fmt: skip


def ways_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {way["name"]: way for way in document["ways"]}


def test_plans_baselines_and_services_side_by_side(run_json: RunJson) -> None:
    document = run_json(
        "compare", SRC, DST, "--min-throughput-gbps", "10", "--volume-gb", "100",
        "--objects", "50", "--instance-limit", "4",
    )  # fmt: skip
    assert (document["src"], document["dst"], document["volume_gb"]) == (SRC, DST, 100.0)
    assert document["goal"]["min_throughput_gbps"] == 10.0
    ways = ways_of(document)
    assert [name for name, way in ways.items() if way["kind"] == "plan"] == PLANS
    plans = {name: TransferPlan.from_dict(ways[name]["plan"]) for name in PLANS}
    for name, plan in plans.items():
        assert ways[name]["total_usd"] == plan.cost.total_usd
        assert max(group.count for group in plan.instances.values()) <= 4
    assert plans["cheapest"].throughput_gbps >= 10 * (1 - 1e-6)
    assert ways["AWS DataSync, basic mode"]["total_usd"] > 0
    assert ways["AzCopy"]["reason"] == "the destination must be Azure Storage"


def test_the_policy_and_the_number_of_relays_hold_for_all(run_json: RunJson) -> None:
    only = run_json("compare", SRC, DST, "--allow-regions", "aws:us-*", "--instance-limit", "1")
    relays = {relay for way in only["ways"] for relay in way["relays"]}
    assert relays
    assert all(relay.startswith("aws:us-") for relay in relays)
    none = run_json("compare", SRC, DST, "--relays", "0", "--instance-limit", "1")
    assert {relay for way in none["ways"] for relay in way["relays"]} == set()


def test_the_text_has_every_way_and_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", SRC, DST, "--volume-gb", "10", "--objects", "10"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    header, *rows = output.out.splitlines()
    for column in ("Gbit/s", "time", "egress", "instances", "requests", "service", "total"):
        assert column in header
    assert {len(row) for row in rows[:8]} == {len(header)}
    assert [row.split()[0] for row in rows[:2]] == ["knee", "cheapest"]
    for words in (
        "direct, 8 instances",
        "RON, 1 instance",
        "DataSync, enhanced mode",
        "the services publish no rates",
        "fee of 2025-04-01",
        "the destination must be Azure Storage",
        "grid: shipped",
    ):
        assert words in output.out


def test_without_a_volume_there_is_no_column_of_sums(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", SRC, DST]) == 0
    header = capsys.readouterr().out.splitlines()[0].split()
    assert header == ["way", "Gbit/s", "$/GB", "relays"]


def test_a_narrow_terminal_gets_two_tables_with_all_values(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skyplane_orchestration.cli.console._PIPE_WIDTH", 80)
    assert main(["compare", SRC, DST, "--volume-gb", "10", "--objects", "10"]) == 0
    what, items, remarks = capsys.readouterr().out.split("\n\n")
    assert what.split("\n")[0].split() == ["way", "Gbit/s", "time", "total", "$/GB", "relays"]
    assert "aws:" not in what
    assert "over aws:" in remarks or "over gcp:" in remarks or "over azure:" in remarks
    assert items.split("\n")[0].split() == ["way", "egress", "instances", "requests", "service"]
    for block in (what, items):
        rows = block.split("\n")
        assert len(rows) == 13
        assert not any("…" in row for row in rows)


def test_inside_one_region_the_services_alone_are_beside_the_plan(run_json: RunJson) -> None:
    ways = ways_of(run_json("compare", SRC, SRC))
    assert [name for name, way in ways.items() if way["kind"] == "plan"] == ["knee", "cheapest"]


def test_a_file_is_in_no_cloud(run_json: RunJson, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(5000))
    (tmp_path / "two").write_bytes(bytes(5000))
    for source, objects in ((tmp_path, 2), (tmp_path / "one", 1)):
        document = run_json(
            "compare", str(source), "s3://bucket/x/", "--dst-region", "aws:eu-west-3"
        )
        assert (document["src"], document["dst"]) == ("local:this-machine", "aws:eu-west-3")
        assert (document["volume_gb"], document["objects"]) == (objects * 5e-6, objects)
        ways = ways_of(document)
        assert ways["cheapest"]["egress_usd"] == 0.0
        assert "not from a directory" in ways["AWS DataSync"]["reason"]


def test_all_ways_pay_for_the_classes_that_the_listing_shows(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = SourceContents(0.1, {"STANDARD_IA": 0.5})
    volume = preflight.Volume(10, 10**11, is_capped=False, archived=0, contents=contents)
    monkeypatch.setattr(preflight, "measure", lambda *_: volume)
    regions = "--src-region", SRC, "--dst-region", DST
    ways = ways_of(run_json("compare", "s3://a/", "s3://b/", *regions))
    usd = pytest.approx(50e9 / 2**30 * 0.01)
    others = [ways[name]["plan"]["cost"]["other_usd"] for name in PLANS]
    assert [one["retrieval"] for one in others] == [usd] * len(PLANS)
    assert ways["AWS DataSync, basic mode"]["other_usd"] == usd
