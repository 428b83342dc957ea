"""Duration of a `sync` with nothing to do, beside rclone.

    python -m bench.rerun [--json] [--smoke] [--rounds N] [--store s3|gcs|azure] [--only CASE]

Both places hold the same objects, 2,000 and 50,000. `skyplane-orch sync` compares them as it does
by default, rclone with `--size-only --fast-list`. Times are those of whole commands, in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from bench.contest import Contest, Round, cases_of, run
from bench.peers import rclone_binary
from bench.places import Places, open_places
from bench.report import Case

ROUNDS: Final = 7
SIZE_BYTES: Final = 100
SMOKE_OBJECTS: Final = 20

OWN, RCLONE = "sync", "rclone"
#: Number of objects -> its contest.
CONTESTS: Final = {
    2000: Contest("noop-2k", OWN, RCLONE, 6.0, 4.0),
    50_000: Contest("noop-50k", OWN, RCLONE, 1.5, 1.0),
}


def rounds_of(places: Places, rounds: int, folder: str, rclone: str | None) -> Iterator[Round]:
    for _ in range(rounds):
        row = Round()
        row.timed(OWN, map(places.seconds, [places.own("sync", f"{folder}/", f"{folder}/")]))
        if rclone is not None:
            command = places.rclone(rclone, "sync", folder, folder, "--size-only", "--fast-list")
            row.timed(RCLONE, map(places.seconds, [command]))
        yield row


def bodies_of(folder: str, objects: int) -> Iterator[tuple[str, bytes]]:
    return ((f"{folder}/{number:05d}", bytes(SIZE_BYTES)) for number in range(objects))


def measure(options: argparse.Namespace) -> tuple[list[Case], int]:
    """The cases whose names begin with `--only`, and the number of rounds."""
    store, only = options.store, options.only or ""
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    cases: list[Case] = []
    chosen = {n: one for n, one in CONTESTS.items() if one.case.startswith(only)}
    with open_places(store) as places:
        for objects, contest in chosen.items():
            if store != "s3" and objects > min(CONTESTS):
                continue  # The emulators list too slowly.
            filled = SMOKE_OBJECTS if options.smoke else objects
            for end in (0, 1):
                places.fill(end, bodies_of(contest.case, filled))
            made = list(rounds_of(places, rounds, contest.case, rclone_binary()))
            cases += cases_of([contest], made, store=store)
    return cases, rounds


def main(arguments: Sequence[str] | None = None) -> int:
    return run("rerun", __doc__, arguments, measure)


if __name__ == "__main__":
    raise SystemExit(main())
