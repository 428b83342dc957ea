"""Runs many random schedules side by side; see `test_soak`."""

from __future__ import annotations

import logging
import multiprocessing
import os
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
