from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from tests.manual_clock import ManualClock

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.lease import Lease


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def make(clock: ManualClock, **changes: float) -> Lease:
    times = {"start_within_s": 900.0, "lease_s": 120.0, "hard_end_s": 3600.0, **changes}
    return Lease(clock.clock, **times)


def test_the_first_lease_covers_the_wait_for_a_start(clock: ManualClock) -> None:
    lease = make(clock)
    assert lease.remaining_s == 900.0
    clock.now_s += 899.0
    assert lease.remaining_s == 1.0
    clock.now_s += 1.0
    assert lease.is_expired
    assert lease.remaining_s == 0.0


def test_a_renewal_replaces_the_lease(clock: ManualClock) -> None:
    lease = make(clock)
    lease.renew()
    assert lease.remaining_s == 120.0
    clock.now_s += 100.0
    lease.renew()
    assert lease.remaining_s == 120.0
    lease.renew(600.0)
    assert lease.remaining_s == 600.0


def test_a_hard_end_limits_the_first_lease(clock: ManualClock) -> None:
    assert make(clock, hard_end_s=60.0).remaining_s == 60.0


@pytest.mark.parametrize("length", [math.nan, math.inf, -math.inf, -1.0, 0.0])
def test_an_invalid_duration_is_refused_and_changes_nothing(
    clock: ManualClock, length: float
) -> None:
    """With NaN the lease would never expire: it passes every comparison."""
    lease = make(clock)
    with pytest.raises(ConfigurationInvalid):
        lease.renew(length)
    assert lease.remaining_s == 900.0


@given(
    st.lists(
        st.tuples(
            st.floats(0, 1e4),
            st.none() | st.floats(min_value=1e-3, max_value=1e12),
        )
    )
)
def test_no_renewal_exceeds_the_hard_end_and_an_expired_lease_stays_expired(
    steps: list[tuple[float, float | None]],
) -> None:
    clock = ManualClock()
    lease = make(clock)
    was_expired = False
    for wait_s, length_s in steps:
        clock.now_s += wait_s
        was_expired = was_expired or lease.is_expired
        lease.renew(length_s)
        assert lease.remaining_s <= max(0.0, 1000.0 + 3600.0 - clock.now_s) + 1e-6
        if was_expired:
            assert lease.is_expired
