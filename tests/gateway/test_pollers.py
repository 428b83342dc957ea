"""Who polls a transfer, and for how long that counts."""

from __future__ import annotations

from tests.manual_clock import ManualClock

from skyplane_gateway.pollers import FOLLOWS_FOR_S, Pollers

KEY = "57" * 16


def test_a_session_follows_until_it_says_otherwise_or_falls_silent() -> None:
    clock = ManualClock(0.0)
    followers = Pollers(clock.clock)
    for session in ("one", "other", ""):
        followers.note(KEY, session)
    assert followers.count(KEY) == 2
    followers.forget(KEY, "one")
    followers.forget(KEY, "one")
    assert (followers.count(KEY), followers.count("another")) == (1, 0)
    clock.now_s = FOLLOWS_FOR_S / 2
    followers.note(KEY, "one")
    clock.now_s = FOLLOWS_FOR_S
    assert followers.count(KEY) == 1
    clock.now_s = 2 * FOLLOWS_FOR_S
    assert followers.count(KEY) == 0
