"""Runs random schedules, many side by side; see `test_schedules`.

`python -m tests.simulation.soak SEED ...` runs some again and tells what happens.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import random_schedule

#: Seeds that a process takes at a time.
_BLOCK: Final = 25
#: The property of a test that names its first and last seed; see tests/conftest.py.
SEEDS_PROPERTY: Final = "schedule seeds"
#: The base seed, where one is wanted.
SEED_VARIABLE: Final = "SKYPLANE_SCHEDULE_SEED"


class Ended(NamedTuple):
    """How the runs of a seed ended, and what is wrong with that; empty when all is well."""

    states: str
    failure: str


def replay_command(seed: int) -> str:
    return f"run it again with: python -m tests.simulation.soak {seed}"


def base_seed(default: int) -> int:
    """The environment's wish, or the default."""
    return int(os.environ.get(SEED_VARIABLE, default))


def _run_seed(seed: int) -> Ended:
    """Run it; whatever happens belongs to that seed and not to the others."""
    logging.disable(logging.CRITICAL)
    # The coroutines of a process that was killed never end, and so leave some unawaited.
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
    findings: tuple[str, ...]
    try:
        outcome = run_schedule(random_schedule(seed))
    except Exception:  # noqa: BLE001 - a fault of the simulation is a finding as well
        states, findings = "error", (traceback.format_exc(),)
    else:
        then = outcome.inspection.then_state
        states, findings = outcome.state + (then and f", then {then}"), outcome.findings
    failed = [f"seed {seed} fails; {replay_command(seed)}", *findings] if findings else []
    return Ended(states, "\n  ".join(failed))


def soak(seeds: range) -> Iterator[Ended]:
    """Run all seeds, as many side by side as there are processors; in the order of their ends."""
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=1000) as pool:
        yield from pool.imap_unordered(_run_seed, seeds, _BLOCK)


def told(outcome: Outcome) -> str:
    """A run as text: what was to go wrong, what happened, how it ended."""
    end = f"{outcome.virtual_s:.3f} virtual s, {outcome.events} events, digest {outcome.digest}"
    findings = (f"FINDING {text}" for text in outcome.findings)
    how = f"{outcome.state} {outcome.reason}".rstrip()
    return "\n".join([str(outcome.schedule), *outcome.log, how, *findings, end])


if __name__ == "__main__":
    outcomes = [run_schedule(random_schedule(int(seed))) for seed in sys.argv[1:]]
    print(*map(told, outcomes), sep="\n")
    sys.exit(any(outcome.findings for outcome in outcomes))
