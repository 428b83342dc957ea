"""The objective that plain numbers name."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import Deadline, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.model.objective_choice import chosen_objective


@pytest.mark.parametrize(
    ("numbers", "objective"),
    [
        ({}, None),
        ({"min_throughput_gbps": 2}, MinimizeCost(2)),
        ({"min_throughput_gbps": 2, "exactly": True}, MinimizeCost(2, exactly=True)),
        ({"max_usd_per_gb": 0.1}, MaximizeThroughput(max_usd_per_gb=0.1)),
        ({"max_cost_usd": 5}, MaximizeThroughput(max_cost_usd=5)),
        ({"deadline_s": 60}, Deadline(60)),
    ],
)
def test_one_number_is_the_objective(numbers: dict[str, Any], objective: object) -> None:
    assert chosen_objective(**numbers) == objective


def test_two_numbers_are_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="give one objective"):
        chosen_objective(max_cost_usd=5, deadline_s=60)
