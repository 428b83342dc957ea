"""The examples of Dagster load without a network, and say what they promise."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import dagster as dg
import pytest
from example_dags.dagster.deadline_at_six import RESERVE_S, seconds_until

#: Example -> its assets.
EXAMPLES = {
    "daily_replication": {"events_paris"},
    "deadline_at_six": {"export_paris"},
    "fan_out": {"models_paris", "models_tokyo", "models_oregon"},
    "nightly_sweep": set(),
    "on_arrival": {"clicks_paris"},
    "partitions_on_one_fleet": {"tables_paris"},
    "quick_transfer": {"orders_paris"},
    "sydney_to_paris": {"imagenet_sydney", "imagenet_paris"},
    "within_budget": {"nights_paris"},
}


def test_all_examples_are_here(repository: Path) -> None:
    files = {path.stem for path in (repository / "example_dags/dagster").glob("*.py")}
    assert files == set(EXAMPLES)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_loads(name: str) -> None:
    defs = import_module(f"example_dags.dagster.{name}").defs
    defs.get_repository_def().load_all_definitions()
    assert {
        key.to_user_string()
        for one in defs.assets or ()
        for key in (one.keys if isinstance(one, dg.AssetsDefinition) else (one.key,))
    } == EXAMPLES[name]


@pytest.mark.parametrize(
    ("now", "hours"), [((2, 0), 4), ((5, 30), 0.5), ((6, 0), 24), ((23, 0), 7)]
)
def test_the_deadline_is_the_next_six_o_clock(now: tuple[int, int], hours: float) -> None:
    at = datetime(2026, 3, 1, *now, tzinfo=UTC)
    assert seconds_until("06:00", at) == hours * 3600 - RESERVE_S
