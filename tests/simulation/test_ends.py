"""Transfers that are ended before their time: by a user, by what they may cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.simulation import orchestrator
from tests.simulation.run import Scene
from tests.simulation.scenarios import MIXED_SIZES, play
from tests.simulation.schedule import Cancel

from skyplane_orchestration.model.job import Policy, TransferJob
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.model.resume_handle import ResumeHandle
from skyplane_orchestration.units import SECONDS_PER_HOUR


@pytest.mark.parametrize("at_s", [0.31, 0.35, 0.4, 0.6, 0.9, 1.3, 1.9])
@pytest.mark.parametrize("shape", [0, 1, 2])
def test_39_a_transfer_that_is_cancelled_leaves_nothing(shape: int, at_s: float) -> None:
    outcome = play(39, shape, MIXED_SIZES, (Cancel(at_s),))
    assert outcome.state in ("cancelled", "succeeded")
    assert outcome.state == "cancelled" or at_s > 1
    assert outcome.inspection.open_uploads == {}


@pytest.mark.parametrize(
    ("shape", "then", "most_usd"),
    [
        *((2, "again", most_usd) for most_usd in (0.1, 0.3, 0.4, 0.6, 0.9, 1.2)),
        *((2, "again elsewhere", most_usd) for most_usd in (0.4, 0.9)),
        *((0, "again", most_usd) for most_usd in (0.4, 0.9)),
    ],
)
def test_43_a_transfer_that_reaches_its_budget_is_stopped_and_resumed(
    shape: int, then: str, most_usd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: property = Scene.__dict__["job"]
    scenes: list[Scene] = []

    def dear(scene: Scene) -> TransferJob:
        scenes.append(scene)
        job: TransferJob = plain.__get__(scene)
        return replace(job, policy=Policy(max_job_usd=most_usd))

    def with_more(scene: Scene, handle: str = "") -> None:
        found = ResumeHandle.from_text(handle).with_budget(100.0).to_text() if handle else ""
        orchestrate(scene, found)

    orchestrate = Scene.orchestrate
    monkeypatch.setattr(Scene, "orchestrate", with_more)
    monkeypatch.setattr(Scene, "job", property(dear))
    # A second of the fleet costs a dollar.
    groups = {tag: InstanceGroup("process", 1, SECONDS_PER_HOUR / 2) for tag in _REGIONS}
    plan = replace(orchestrator._PLAN, instances=groups)
    monkeypatch.setattr(orchestrator, "_PLAN", plan)
    # Looked at often, so that it is stopped at many moments.
    begin = orchestrator.SimClient.__init__

    def impatient(client: orchestrator.SimClient, *arguments: Any) -> None:
        begin(client, *arguments)
        client._context = replace(client._context, poll_s=0.05)

    monkeypatch.setattr(orchestrator.SimClient, "__init__", impatient)
    play(43, shape, MIXED_SIZES, then=then)
    first, second = scenes[0].orchestrators
    assert first.result is not None
    assert second.result is not None
    assert first.result.error_code == "budget-reached"
    assert first.result.cost.total_usd >= most_usd
    assert first.result.resume_handle
    assert second.result.state == "succeeded"
    assert second.result.epoch > first.result.epoch


_REGIONS = tuple(orchestrator._PLAN.instances)
