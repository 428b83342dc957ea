"""Orchestrators that poll a transfer."""

from __future__ import annotations

from tests.manual_clock import ManualClock

from skyplane_gateway.service import POLLER_TIMEOUT_S, Pollers

KEY = "57" * 16


def test_a_session_counts_until_it_ends_or_stops_polling() -> None:
    clock = ManualClock(0.0)
    pollers = Pollers(clock.clock)
    for session in ("one", "other", ""):
        pollers.note(KEY, session)
    assert pollers.count(KEY) == 2
    pollers.forget(KEY, "one")
    pollers.forget(KEY, "one")
    assert (pollers.count(KEY), pollers.count("another")) == (1, 0)
    clock.now_s = POLLER_TIMEOUT_S / 2
    pollers.note(KEY, "one")
    clock.now_s = POLLER_TIMEOUT_S
    assert pollers.count(KEY) == 1
    clock.now_s = 2 * POLLER_TIMEOUT_S
    assert pollers.count(KEY) == 0
