"""Schedules as hypothesis makes them: what fails shrinks to the few faults that matter."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.simulation.buckets import WRONG
from tests.simulation.schedule import (
    CONFLICTS,
    DESTINATION_METHODS,
    KIB,
    SHAPES,
    SIZES,
    SOURCE_METHODS,
    STORE_FAULTS,
    Appear,
    Call,
    Cancel,
    Change,
    Cut,
    Damage,
    Fault,
    Frame,
    Kill,
    KillClient,
    Reset,
    Schedule,
    Slow,
    Stop,
    Store,
    Terminate,
    Truncate,
)

_MOMENTS = st.integers(1, 50).map(lambda steps: steps / 20)
_LASTING = st.sampled_from((0.5, 5.0, 40.0, 400.0))
_OFFSETS = st.integers(0, 60 * KIB)


def _store_faults() -> st.SearchStrategy[Fault]:
    sides = [("source", method) for method in SOURCE_METHODS]
    sides += [("destination", method) for method in DESTINATION_METHODS]
    return st.sampled_from(sides).flatmap(
        lambda place: st.builds(
            Store,
            st.just(place[0]),
            st.just(place[1]),
            st.integers(1, 12),
            st.sampled_from((1, 2, 30)),
            st.sampled_from(
                [k for k in STORE_FAULTS[place[1]] if k != WRONG or place[0] == "source"]
            ),
        )
    )


def _faults(gateways: int, hops: int, objects: int) -> st.SearchStrategy[Fault]:
    gateway, hop = st.integers(0, gateways - 1), st.integers(0, hops - 1)
    restart = st.none() | st.sampled_from((0.5, 20.0))
    return st.one_of(
        _store_faults(),
        st.builds(
            Call,
            st.integers(1, 60),
            st.sampled_from(("lost request", "lost answer", "slow")),
        ),
        st.builds(Cancel, _MOMENTS),
        st.builds(Appear, _MOMENTS, st.integers(0, objects - 1), st.booleans()),
        st.builds(Change, _MOMENTS, st.integers(0, objects - 1), st.booleans()),
        st.builds(
            Frame,
            _MOMENTS,
            hop,
            st.sampled_from(("duplicate", "swap", "drop", "flip")),
            st.integers(1, 4),
        ),
        st.builds(Damage, _MOMENTS, hop, _OFFSETS),
        st.builds(Truncate, _MOMENTS, hop, _OFFSETS),
        st.builds(Reset, _MOMENTS, hop),
        st.builds(Slow, _MOMENTS, hop, _LASTING, st.sampled_from((2e5, 2e4, 1e3))),
        st.builds(Cut, _MOMENTS, hop, _LASTING, st.sampled_from(("there", "back", "both"))),
        st.builds(Stop, _MOMENTS, gateway, _LASTING),
        st.builds(Kill, _MOMENTS, gateway, restart),
        st.builds(Terminate, _MOMENTS, gateway),
        st.builds(KillClient, _MOMENTS, st.sampled_from((0.5, 10.0))),
    )


@st.composite
def schedules(draw: st.DrawFn, *, most_faults: int = 5) -> Schedule:
    """Schedules of any fleet; the simplest is one object, two gateways and no fault."""
    shape = draw(st.integers(0, len(SHAPES) - 1))
    sizes = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=10)))
    bare = Schedule(draw(st.integers(0, 1 << 30)), shape, sizes)
    faults = draw(
        st.lists(
            _faults(len(bare.nodes), len(bare.hops), len(sizes)), min_size=0, max_size=most_faults
        )
    )
    return Schedule(
        bare.seed,
        shape,
        sizes,
        tuple(faults),
        draw(st.sampled_from(CONFLICTS)),
        draw(st.sampled_from((0, 1, 2))),
        draw(st.booleans()),
        draw(st.sampled_from(("stored", "reread"))),
        draw(st.sampled_from((0, 2, 3))),
        draw(st.booleans()),
        draw(st.sampled_from(("nothing", "again", "again elsewhere"))),
        draw(st.booleans()),
    )
