"""The planner's bench runs; what it measures is no business of a test."""

from __future__ import annotations

import json

import pytest
from bench import planner, planner_quality, report
from bench.report import Case


def test_the_smoke_mode_prints_the_promised_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "FLOOR_S", 1e6)
    monkeypatch.setattr(planner, "PLAIN_REGIONS", 6)
    monkeypatch.setattr(planner_quality, "PLAIN_GAP", 1.0)
    assert planner.main(["--smoke", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"bench", "commit", "machine", "runs", "results"}
    assert document["bench"] == "planner"
    assert all(set(result) == set(Case.__dataclass_fields__) for result in document["results"])


@pytest.mark.parametrize(
    ("case", "holds"),
    [
        (Case("quick enough", 0.5, "s", floor=1.0), True),
        (Case("too slow", 1.5, "s", floor=1.0), False),
        (Case("fast enough", 3.0, "Gbit/s", floor=2.0), True),
        (Case("too little", 1.0, "Gbit/s", floor=2.0), False),
        (Case("just a figure", 1.0, "Gbit/s"), True),
    ],
)
def test_a_floor_is_an_upper_bound_for_times_alone(
    case: Case, holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert case.holds is holds
    assert report.finish("some", [case], runs=1, as_json=False) == (0 if holds else 1)
    assert ("BELOW FLOOR" in capsys.readouterr().out) is not holds
