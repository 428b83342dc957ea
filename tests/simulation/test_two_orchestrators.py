"""Two runs of one key at once, at every moment of a transfer: one transfer comes of it."""

from __future__ import annotations

from functools import partial

import pytest
from tests.simulation import run
from tests.simulation.injection import plan_faults
from tests.simulation.run import Outcome, Scene
from tests.simulation.scenarios import MIXED_SIZES, ensure_well
from tests.simulation.schedule import Fault, Kill, Schedule


@pytest.mark.parametrize("faults", [(), (Kill(0.6, 0),)], ids=["", "and the lead dies"])
@pytest.mark.parametrize(
    ("shape", "second_s"),
    [*((2, at_s) for at_s in (0.0, 0.05, 0.2, 0.3, 0.4, 0.7, 1.2)), (0, 0.0), (0, 0.3)],
)
def test_38_the_second_joins(
    shape: int, second_s: float, faults: tuple[Fault, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, outcome = _two_runs(Schedule(38, shape, MIXED_SIZES, faults), second_s, monkeypatch)
    results = [one.result for one in scene.orchestrators]
    assert [result and result.state for result in results] == ["succeeded"] * 2
    assert len({result.transfer_key for result in results if result is not None}) == 1
    if not faults:
        assert {result.epoch for result in results if result is not None} == {1}
        joined = [one.submitted[0][1].joined for one in scene.orchestrators]
        assert sorted(joined) == [False, True]
        assert outcome.inspection.put_bytes == sum(MIXED_SIZES), "nothing is written twice"


@pytest.mark.parametrize("second_s", [0.9, 2.0])
@pytest.mark.parametrize(
    ("conflict", "move"), [("fail", False), ("replace", True), ("replace", False)]
)
def test_38_both_get_the_success_after_the_lead_has_died(
    second_s: float, conflict: str, move: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second brings the lead up again at another address, ends and releases all. The first
    knew the old address alone, took the transfer for one that nobody had begun, had another
    source lead the same epoch again, and reported as failed what was done."""
    scene, outcome = _two_runs(
        Schedule(38, 2, MIXED_SIZES, (Kill(0.6, 0),), conflict=conflict, move=move),
        second_s,
        monkeypatch,
    )
    results = [one.result for one in scene.orchestrators]
    assert [result and result.state for result in results] == ["succeeded"] * 2
    assert {result.epoch for result in results if result is not None} == {2}
    assert {result.objects for result in results if result is not None} == {len(MIXED_SIZES)}
    # What was done in epoch 1 before the kill may be written twice, nothing else.
    assert outcome.inspection.put_bytes < 2 * sum(MIXED_SIZES)


def _two_runs(
    schedule: Schedule, second_s: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[Scene, Outcome]:
    """Run two orchestrators, the second after `second_s`."""
    scenes: list[Scene] = []

    def plan(scene: Scene) -> None:
        scenes.append(scene)
        plan_faults(scene)
        scene.world.after(second_s, partial(scene.orchestrate))

    monkeypatch.setattr(run, "plan_faults", plan)
    outcome = ensure_well(schedule)
    (scene,) = scenes
    assert [one.crash for one in scene.orchestrators] == ["", ""]
    return scene, outcome
