"""The metrics of a transfer; whole runs send it to a socket in tests/e2e."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.common.compat import sdk
from tests.transfer import samples

from skyplane_orchestration.lineage.facts import transfer_facts
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TryOutcome
from skyplane_orchestration.operators.transfer import emit_metrics


class Emitted:
    """Keeps metrics by name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.tags: dict[str, str] = {}

    def incr(self, name: str, value: Any, *, tags: dict[str, str]) -> None:
        self.values[name.removeprefix("skyplane.transfer.")] = value
        self.tags = tags

    gauge = timing = incr


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> Emitted:
    found = Emitted()
    monkeypatch.setattr(sdk, "Stats", found, raising=False)
    return found


def test_counters_are_of_this_try_and_gauges_of_the_transfer(emitted: Emitted) -> None:
    own = TryOutcome(copied=4, copied_bytes=100, seconds=0.5)
    facts = transfer_facts(samples.JOB, None, samples.result(failed=2, this_try=own))
    emit_metrics(facts, "dag", "move.transfer")
    assert emitted.values["bytes"] == 100
    assert emitted.values["objects"] == 4
    assert emitted.values["failed_objects"] == 2
    assert emitted.values["seconds"].total_seconds() == 0.5
    assert emitted.values["goodput_gbps"] == 0.5
    assert emitted.values["cost_usd"] == 6.0


def test_drift_is_a_gauge_where_the_rates_can_be_compared(emitted: Emitted) -> None:
    emit_metrics(transfer_facts(samples.JOB, None, samples.result()), "dag", "t")
    assert "drift" not in emitted.values
    drifted = samples.result(gateways="aws", seconds=90.0, goodput_gbps=1.5)
    emit_metrics(transfer_facts(samples.JOB, None, drifted), "dag", "t")
    assert emitted.values["drift"] == -0.5


def test_no_planned_cost_without_an_estimate(emitted: Emitted) -> None:
    emit_metrics(transfer_facts(samples.JOB, None, samples.result()), "dag", "t")
    assert "planned_cost_usd" not in emitted.values


def test_a_region_that_nobody_has_named_is_unknown(emitted: Emitted) -> None:
    job = replace(samples.JOB, source=Location("s3://src/"))
    emit_metrics(transfer_facts(job, None, samples.result()), "dag", "t")
    assert (emitted.tags["src"], emitted.tags["dst"]) == ("unknown", "gcp.europe-west4")
