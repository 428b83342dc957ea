"""The bill of a month: runs, growth, and tiers that jobs share."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner import ForecastJob, forecast
from skyplane_orchestration.planner.forecasting import jobs_from

LAKE: dict[str, Any] = {"name": "lake", "src": "aws:us-east-1", "dst": "gcp:us-east4"}


def job(**more: Any) -> ForecastJob:
    return ForecastJob(**{**LAKE, "volume_gb": 500.0, "objects": 500, **more})


@pytest.mark.parametrize(
    ("more", "runs"),
    [
        ({"schedule": "hourly"}, 720),
        ({"schedule": "daily"}, 30),
        ({"schedule": "weekly"}, 30 / 7),
        ({"schedule": "monthly"}, 1),
        ({"schedule": "daily", "runs": 3}, 3),
    ],
)
def test_a_schedule_is_a_number_of_runs(more: dict[str, Any], runs: float) -> None:
    assert job(**more).runs_in(date(2026, 11, 1)) == runs


def test_thirty_runs_of_500_gb_are_the_bill_of_15_tb(few: Grid) -> None:
    found = forecast(few, [job(schedule="daily")], "2026-11")
    assert found.usd == pytest.approx(1281, rel=0.03)
    document = found.to_dict()
    assert document == json.loads(json.dumps(document)), "XCom wraps tuples"


def test_volume_grows_from_month_to_month(few: Grid) -> None:
    growing = job(growth_per_month=0.1, since="2026-11", runs=2)
    months = (date(2026, 11, 1), date(2026, 12, 1), date(2027, 2, 1))
    assert [growing.grown(month) for month in months] == pytest.approx([1, 1.1, 1.1**3])
    (bill,) = forecast(few, [growing], "2026-12").jobs
    assert [bill.run_gb, bill.month_gb] == pytest.approx([550, 1100])


def test_jobs_share_the_tiers_of_their_cloud(few: Grid) -> None:
    one = forecast(few, [job(runs=40)], "2026-11")
    halves = [job(name="a", runs=20), job(name="b", runs=20)]
    both = forecast(few, halves, "2026-11")
    assert both.usd == pytest.approx(one.usd, rel=1e-3)
    assert both.jobs[1].already_gb == both.jobs[0].month_gb == 10_000
    assert both.jobs[1].usd < both.jobs[0].usd
    other = forecast(few, [job(runs=20), job(src="azure:eastus", runs=20)], "2026-11")
    assert [bill.already_gb for bill in other.jobs] == [0, 0]


def test_bytes_inside_a_cloud_use_no_tier(few: Grid) -> None:
    inside = job(name="inside", dst="aws:us-west-2", runs=100)
    found = forecast(few, [inside, job()], "2026-11", already_this_month_gb=7.0)
    assert [bill.already_gb for bill in found.jobs] == [7.0, 7.0]


def test_alternatives_stand_beside_each_job(few: Grid) -> None:
    (bill,) = forecast(few, [job(schedule="daily")], "2026-11").jobs
    named = {way.name: way.usd for way in bill.ways}
    assert bill.ways[0].name == "cheapest"
    assert {"knee", "fastest", "direct_1", "ron_n"} <= named.keys()
    assert any("DataSync" in name for name in named)
    plans = [named[name] for name in ("knee", "fastest", "direct_1", "direct_n", "ron_1")]
    assert all(usd is not None and usd >= bill.usd * (1 - 1e-3) for usd in plans)


def test_the_class_of_the_source_is_billed(few: Grid) -> None:
    plain, cold = (
        forecast(few, [job(source_storage_class=one)], "2026-11").usd
        for one in (None, "STANDARD_IA")
    )
    assert cold - plain == pytest.approx(500e9 / 2**30 * 0.01, rel=0.01)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "list `jobs`"),
        ({"jobs": []}, "list `jobs`"),
        ([], "file of jobs"),
        ({"jobs": ["x"]}, "job 1"),
        ({"jobs": [LAKE]}, "job 'lake'.*volume_gb"),
        ({"jobs": [{**LAKE, "volume_gb": 0}]}, "job 'lake'.*volume_gb"),
        ({"jobs": [{**LAKE, "volume_gb": 1, "schedule": "often"}]}, "job 'lake'.*schedule"),
        ({"jobs": [{**LAKE, "volume_gb": 1, "since": "May"}]}, "job 'lake'.*since"),
        ({"jobs": [{**LAKE, "volume_gb": 1, "growth_per_month": -1}]}, "job 'lake'.*growth"),
        ({"jobs": [{**LAKE, "volume_gb": 1, "runs": -1}]}, "job 'lake'.*runs"),
        ({"jobs": [{**LAKE, "volume_gb": 1, "speed": 1}]}, "job 'lake'.*speed"),
    ],
)
def test_a_bad_file_names_the_job_and_the_field(document: object, said: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=said) as caught:
        jobs_from(document)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("month", ["", "2026", "2026-13", "May"])
def test_a_month_that_is_none_is_refused(few: Grid, month: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="month must be a month such as 2026-11"):
        forecast(few, [job()], month)
