"""The decisions, and what holds of every course of events."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from skyplane_orchestration.recovery.failover_decisions import (
    MAX_FAILOVERS,
    SILENT_POLLS,
    Action,
    Answered,
    Broken,
    Displaced,
    EndWell,
    Event,
    Failover,
    FleetRestored,
    FleetView,
    GiveUp,
    Inspect,
    Inspected,
    Poll,
    RestoreFailed,
    RestoreFleet,
    Silent,
    Submit,
    SubmitFailed,
    Submitted,
    Tenure,
)

FIRST = Tenure("a", 1)
#: A caller plans a transfer again a few times only.
MOST_MOVES = 3
SLOW = Displaced("a path is slow", has_other_plan=True)


def view(
    sources: str = "bc",
    sinks: str = "z",
    *,
    newest: Tenure | None = None,
    running: Tenure | None = None,
    epoch: int = 1,
    newest_epoch: int = 0,
    acknowledged_epoch: int = 0,
) -> Inspected:
    newest = newest or running
    ends = tuple(sources), tuple(sinks)
    return Inspected(
        FleetView(
            *ends,
            newest,
            running,
            epoch,
            newest_epoch=newest_epoch,
            acknowledged_epoch=acknowledged_epoch,
        )
    )


def silence(failover: Failover) -> Action:
    """Silent polls until the lead counts as lost."""
    for _ in range(SILENT_POLLS - 1):
        assert failover.on(Silent("no answer")) == Poll(failover.tenure)
    return failover.on(Silent("no answer"))


def test_an_answer_resets_the_count_of_silent_polls() -> None:
    failover = Failover(FIRST)
    for _ in range(3):
        for _ in range(SILENT_POLLS - 1):
            assert failover.on(Silent("")) == Poll(FIRST)
        assert failover.on(Answered(1, has_progress=False)) == Poll(FIRST)
    assert silence(failover) == Inspect()


def test_the_next_source_leads_the_next_epoch() -> None:
    failover = Failover(FIRST)
    silence(failover)
    order = failover.on(view("bc", "yz"))
    assert order == Submit(Tenure("b", 2), ("b", "c"), ("y", "z"))
    assert failover.on(Submitted(Tenure("b", 2))) == Poll(Tenure("b", 2))


@pytest.mark.parametrize(("known", "epoch"), [(1, 2), (2, 2), (9, 9)])
def test_the_epoch_is_new_whatever_the_gateways_remember(known: int, epoch: int) -> None:
    failover = Failover(FIRST)
    silence(failover)
    order = failover.on(view(epoch=known))
    assert isinstance(order, Submit)
    assert order.tenure.epoch == epoch


def test_the_lost_lead_is_asked_again_only_when_there_is_no_other() -> None:
    for sources, lead in (("ab", "b"), ("a", "a")):
        failover = Failover(FIRST)
        failover.on(Displaced("restarted"))
        order = failover.on(view(sources))
        assert isinstance(order, Submit)
        assert order.tenure == Tenure(lead, 2)


def test_a_newer_epoch_is_followed_wherever_it_is() -> None:
    for newer in (Tenure("c", 5), Tenure("a", 2)):
        failover = Failover(FIRST)
        silence(failover)
        assert failover.on(view(running=newer)) == Poll(newer)
        assert failover.failovers == 0
    ended = Failover(FIRST)
    ended.on(Displaced("epoch 1 is over"))
    assert ended.on(view(newest=Tenure("c", 3))) == Poll(Tenure("c", 3))
    assert Failover(FIRST).on(Answered(4, has_progress=False)) == Poll(Tenure("a", 4))


def test_a_lead_of_an_older_epoch_that_wakes_is_not_followed() -> None:
    failover = Failover(Tenure("b", 2))
    silence(failover)
    order = failover.on(view("ac", running=FIRST))
    assert isinstance(order, Submit)
    assert order.tenure == Tenure("a", 3)


def test_a_lead_that_answers_an_inspection_is_followed() -> None:
    failover = Failover(FIRST)
    silence(failover)
    assert failover.on(view("ab", running=FIRST)) == Poll(FIRST)
    assert failover.on(Silent("")) == Poll(FIRST), "counted from the start"


@pytest.mark.parametrize(("sources", "sinks"), [("", ""), ("", "z"), ("bc", "")])
def test_without_a_source_or_a_sink_the_fleet_is_restored_once(sources: str, sinks: str) -> None:
    failover = Failover(FIRST)
    silence(failover)
    assert failover.on(view(sources, sinks)) == RestoreFleet()
    assert failover.on(FleetRestored()) == Inspect()
    order = failover.on(view("abc", "z"))
    assert isinstance(order, Submit)
    failover.on(Submitted(order.tenure))
    failover.on(Answered(2, has_progress=True))
    silence(failover)
    refusal = failover.on(view(sources, sinks))
    assert isinstance(refusal, GiveUp)
    assert "is lost: no answer" in refusal.reason


def test_a_fleet_that_cannot_be_restored_ends_the_transfer() -> None:
    failover = Failover(FIRST)
    silence(failover)
    failover.on(view("", ""))
    refusal = failover.on(RestoreFailed("no ports"))
    assert isinstance(refusal, GiveUp)
    assert "no ports" in refusal.reason
    assert "no answer" in refusal.reason


def test_a_broken_fleet_is_restored_at_once() -> None:
    failover = Failover(FIRST)
    assert failover.on(Broken("no path is up")) == RestoreFleet()
    failover.on(FleetRestored())
    assert failover.on(view("ab", newest=FIRST)) == Submit(Tenure("b", 2), ("a", "b"), ("z",))


def test_a_transfer_without_progress_has_no_second_failover() -> None:
    failover = Failover(FIRST)
    silence(failover)
    order = failover.on(view())
    assert isinstance(order, Submit)
    failover.on(Submitted(order.tenure))
    failover.on(Answered(2, has_progress=False))
    silence(failover)
    refusal = failover.on(view("c"))
    assert isinstance(refusal, GiveUp)
    assert "no progress" in refusal.reason


def test_with_progress_there_are_failovers_up_to_the_limit() -> None:
    failover = Failover(FIRST)
    for turn in range(MAX_FAILOVERS):
        silence(failover)
        order = failover.on(view("bc"))
        assert isinstance(order, Submit)
        assert order.tenure.epoch == turn + 2
        failover.on(Submitted(order.tenure))
        failover.on(Answered(order.tenure.epoch, has_progress=True))
    silence(failover)
    refusal = failover.on(view("bc"))
    assert isinstance(refusal, GiveUp)
    assert "3 failovers" in refusal.reason


def test_after_a_failed_submit_the_fleet_is_restored_and_another_source_is_asked() -> None:
    failover = Failover(FIRST)
    silence(failover)
    failover.on(view("bc"))
    assert failover.on(SubmitFailed("a path is down")) == RestoreFleet()
    assert failover.on(FleetRestored()) == Inspect()
    assert failover.on(view("bc")) == Submit(Tenure("b", 2), ("b", "c"), ("z",))
    assert failover.on(SubmitFailed("b is gone as well")) == Inspect()
    assert failover.on(view("c")) == Submit(Tenure("c", 2), ("c",), ("z",))


def test_the_move_to_another_plan_is_no_failover() -> None:
    failover = Failover(FIRST)
    for epoch in (2, 3, 4, 5):
        assert failover.on(SLOW) == Inspect()
        order = failover.on(view("a"))
        assert order == Submit(Tenure("a", epoch), ("a",), ("z",))
        assert failover.on(Submitted(order.tenure)) == Poll(order.tenure)
        assert failover.on(Answered(epoch, has_progress=False)) == Poll(order.tenure)
    assert failover.failovers == 0
    # One that nobody leads afterwards is.
    failover.on(SLOW)
    failover.on(view("a", epoch=6))
    assert failover.on(SubmitFailed("a path is down")) == RestoreFleet()
    failover.on(FleetRestored())
    assert isinstance(failover.on(view("a", epoch=6)), Submit)
    assert failover.failovers == 1


def test_another_orchestrator_may_lead_before_the_move_ends() -> None:
    failover = Failover(FIRST)
    failover.on(SLOW)
    newer = Tenure("b", 2)
    assert failover.on(view("ab", running=newer)) == Poll(newer)
    failover.on(Displaced("it was restarted"))
    assert isinstance(failover.on(view("ab", epoch=3)), Submit)
    assert failover.failovers == 1


def test_the_lead_of_another_orchestrator_is_searched_before_a_failover() -> None:
    """It may have a new address, which this call does not know."""
    failover = Failover(FIRST)
    silence(failover)
    assert failover.on(view(newest_epoch=2)) == RestoreFleet()
    assert failover.on(FleetRestored()) == Inspect()
    assert failover.on(view("abc", running=Tenure("a", 2), newest_epoch=2)) == Poll(Tenure("a", 2))
    # And when that one is lost, the fleet may still be brought up again.
    silence(failover)
    assert failover.on(view("", "", newest_epoch=2)) == RestoreFleet()


@pytest.mark.parametrize("answer", [FleetRestored(), RestoreFailed("it was torn down")])
def test_a_lead_that_is_not_found_is_replaced(answer: Event) -> None:
    failover = Failover(FIRST)
    silence(failover)
    failover.on(view(newest_epoch=2))
    assert failover.on(answer) == Inspect()
    assert failover.on(view(newest_epoch=2, epoch=3)) == Submit(Tenure("b", 3), ("b", "c"), ("z",))


@pytest.mark.parametrize("heard", [1, 2])
def test_an_acknowledged_success_is_not_begun_again(heard: int) -> None:
    """Released gateways report no transfer."""
    failover = Failover(FIRST)
    silence(failover)
    over = view(newest_epoch=heard, acknowledged_epoch=heard, epoch=heard + 1)
    assert failover.on(over) == RestoreFleet()
    failover.on(FleetRestored())
    assert failover.on(over) == EndWell(heard)
    found = Failover(FIRST)
    silence(found)
    found.on(over)
    found.on(FleetRestored())
    tenure = Tenure("a", heard)
    assert found.on(
        view("abc", newest=tenure, newest_epoch=heard, acknowledged_epoch=heard)
    ) == Poll(tenure)
    gone = Failover(FIRST)
    silence(gone)
    gone.on(over)
    gone.on(RestoreFailed("it was torn down"))
    assert gone.on(view("", "")) == EndWell(heard)


def test_the_success_of_an_older_epoch_does_not_end_this_one() -> None:
    failover = Failover(Tenure("a", 3))
    silence(failover)
    assert failover.on(view(newest_epoch=3, acknowledged_epoch=2, epoch=4)) == Submit(
        Tenure("b", 4), ("b", "c"), ("z",)
    )


# -- laws


def _views() -> st.SearchStrategy[Inspected]:
    tenures = st.builds(Tenure, st.sampled_from("abc"), st.integers(1, 6))
    return st.builds(
        lambda sources, sinks, newest, is_running, epoch, known, heard: view(
            "".join(sorted(sources)),
            "".join(sorted(sinks)),
            newest=newest,
            running=newest if is_running else None,
            epoch=epoch,
            newest_epoch=known,
            acknowledged_epoch=heard,
        ),
        st.sets(st.sampled_from("abc")),
        st.sets(st.sampled_from("yz")),
        st.none() | tenures,
        st.booleans(),
        st.integers(1, 6),
        st.integers(0, 6),
        st.integers(0, 2),
    )


@given(st.data())
def test_whatever_happens_epochs_rise_and_the_end_comes(data: st.DataObject) -> None:
    """An adversary answers every action; no epoch is begun twice and turns are bounded."""
    failover = Failover(FIRST)
    action: Action = Poll(FIRST)
    submits: list[Submit] = []
    ensured = moves = 0
    for _ in range(60):
        epoch = failover.tenure.epoch
        match action:
            case GiveUp() | EndWell():
                break
            case Poll(tenure):
                assert tenure == failover.tenure
                moves += (is_moved := moves < MOST_MOVES and data.draw(st.booleans()))
                polled: list[Event] = (
                    [SLOW]
                    if is_moved
                    else [
                        Silent("s"),
                        Displaced("d"),
                        Broken("b"),
                        Answered(epoch, has_progress=False),
                        Answered(epoch, has_progress=True),
                    ]
                )
                event: Event = data.draw(st.sampled_from(polled))
            case Inspect():
                event = data.draw(_views())
            case Submit():
                assert action.tenure.epoch > epoch
                assert action.tenure.lead in action.sources
                assert action.sinks
                submits.append(action)
                handed: list[Event] = [Submitted(action.tenure), SubmitFailed("r")]
                event = data.draw(st.sampled_from(handed))
            case RestoreFleet():
                ensured += 1
                event = FleetRestored() if data.draw(st.booleans()) else RestoreFailed("n")
        action = failover.on(event)
        assert failover.tenure.epoch >= epoch
    assert len(submits) <= MAX_FAILOVERS + moves
    assert ensured <= 2
