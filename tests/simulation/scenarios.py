"""What tests of single schedules share: a job, the fleets by name, and the check at the end."""

from __future__ import annotations

from typing import Any, Final

from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import KIB, Fault, Schedule

#: Objects in parts, in one chunk, and in a chunk with others.
MIXED_SIZES: Final = (260 * KIB, 700, 150 * KIB, 32 * KIB, 1, 70 * KIB)

#: One path; two paths, one with a relay; two sources, one relay, two sinks; four paths.
ONE, TWO, WIDE, MESH = range(4)

#: Gateways of WIDE, by number; the relay of TWO has the same.
A, R, B, C, D = range(5)

#: How long the fleets of the simulation wait for a receipt.
ACK_DEADLINE_S: Final = 10.0


def ensure_well(schedule: Schedule) -> Outcome:
    """Run a schedule; fails with its log where it violates a standing condition."""
    outcome = run_schedule(schedule)
    assert not outcome.findings, "\n".join(
        ["", *outcome.findings, f"run again: run_schedule({schedule!r})", *outcome.log]
    )
    return outcome


def run(shape: int, *faults: Fault, **more: Any) -> Outcome:
    """Run the usual job on that fleet with these faults; see `Schedule` for `more`."""
    return play(7, shape, MIXED_SIZES, faults, **more)


def play(seed: int, shape: int, sizes: tuple[int, ...], *rest: Any, **more: Any) -> Outcome:
    """Run a schedule with these fields."""
    return ensure_well(Schedule(seed, shape, sizes, *rest, **more))


def hop(shape: int, origin: str, target: str) -> int:
    """The number of a hop in its fleet."""
    return Schedule(0, shape, ()).hops.index((origin, target))
