"""Runs many random schedules: `python -m tests.simulation.soak --count 20000 --seed 7`.

Prints the seeds, how the runs ended, and of every run that violates a standing condition
the seed and how to run it again. The exit status is 1 when there is one.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.run import run_schedule
from tests.simulation.schedule import random_schedule

#: Seeds that a process takes at a time.
_BLOCK: Final = 25

#: The property of a test that names its first and last seed; see tests/conftest.py.
SEEDS_PROPERTY: Final = "schedule seeds"

#: The base seed, where one is wanted.
SEED_VARIABLE: Final = "SKYPLANE_SCHEDULE_SEED"


@dataclass(frozen=True, slots=True)
class Ended:
    """How the run of one seed ended."""

    seed: int
    state: str
    then_state: str
    findings: tuple[str, ...]

    @property
    def text(self) -> str:
        lines = "\n".join(f"  {finding}" for finding in self.findings)
        return f"seed {self.seed} fails; {replay_command(self.seed)}\n{lines}"


@dataclass(slots=True)
class Tally:
    """How many runs there were."""

    states: Counter[str] = field(default_factory=Counter)
    failed: list[Ended] = field(default_factory=list)

    def add(self, ended: Ended) -> None:
        then = f", then {ended.then_state}" if ended.then_state else ""
        self.states[ended.state + then] += 1
        if ended.findings:
            self.failed.append(ended)


def replay_command(seed: int) -> str:
    return f"run it again with: python -m tests.simulation.replay {seed}"


def base_seed(default: int) -> int:
    """The environment's wish, or the default."""
    return int(os.environ.get(SEED_VARIABLE, default))


def run_seed(seed: int) -> Ended:
    """Run it; whatever happens belongs to that seed and not to the others."""
    try:
        outcome = run_schedule(random_schedule(seed))
    except Exception:  # noqa: BLE001 - a fault of the simulation is a finding as well
        return Ended(seed, "error", "", (traceback.format_exc(),))
    then = outcome.inspection.then_state
    return Ended(seed, outcome.state, then, outcome.findings)


def _run_block(seeds: range) -> list[Ended]:
    logging.disable(logging.CRITICAL)
    # The coroutines of a process that was killed never end, and so leave some unawaited.
    warnings.filterwarnings("ignore", message="coroutine .* was never awaited")
    return [run_seed(seed) for seed in seeds]


def soak(seeds: range, *, processes: int, told: Callable[[Ended], None] = lambda _: None) -> Tally:
    """Run all seeds, some side by side.

    Args:
        told: of every run that violates a standing condition, at once.
    """
    tally = Tally()
    blocks = [seeds[start : start + _BLOCK] for start in range(0, len(seeds), _BLOCK)]
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=40) as pool:
        _collect(pool.imap_unordered(_run_block, blocks), tally, told)
    return tally


def _collect(blocks: Iterable[list[Ended]], tally: Tally, told: Callable[[Ended], None]) -> None:
    for block in blocks:
        for ended in block:
            tally.add(ended)
            if ended.findings:
                told(ended)


def main(arguments: list[str]) -> int:
    """Exit status 1 when a run violates a standing condition."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="how many schedules")
    parser.add_argument("--seed", type=int, help="the first seed; random when left out")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args(arguments)
    first = base_seed(random.SystemRandom().randrange(1 << 40))
    if wanted.seed is not None:
        first = wanted.seed
    seeds = range(first, first + wanted.count)
    print(f"schedules: seeds {seeds.start}..{seeds.stop - 1}", flush=True)
    began_s = time.perf_counter()
    tally = soak(
        seeds, processes=wanted.processes, told=lambda ended: print(ended.text, flush=True)
    )
    for state, count in tally.states.most_common():
        print(f"{count:7} {state}")
    took_s = time.perf_counter() - began_s
    print(f"{len(seeds)} schedules in {took_s:.0f} s, {len(tally.failed)} of them fail")
    return int(bool(tally.failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
