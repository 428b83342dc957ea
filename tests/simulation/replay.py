"""Runs schedules again and tells what happens: `python -m tests.simulation.replay SEED ...`."""

from __future__ import annotations

import sys
import time

from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import random_schedule


def told(outcome: Outcome, seconds: float) -> str:
    """A run as text: what was to go wrong, what happened, how it ended."""
    return "\n".join(
        [
            str(outcome.schedule),
            *outcome.log,
            f"{outcome.state} {outcome.reason}".rstrip(),
            *(f"FINDING {text}" for text in outcome.findings),
            f"{outcome.virtual_s:.3f} virtual s, {outcome.events} events, "
            f"{seconds:.3f} s, digest {outcome.digest}",
        ]
    )


def main(arguments: list[str]) -> int:
    """Exit status 1 when a run violates a standing condition."""
    has_findings = False
    for seed in map(int, arguments):
        began = time.perf_counter()
        outcome = run_schedule(random_schedule(seed))
        print(told(outcome, time.perf_counter() - began))
        has_findings = has_findings or bool(outcome.findings)
    return int(has_findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
