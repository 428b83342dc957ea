"""Duration of a `sync` with nothing to do, beside rclone.

    python -m bench.rerun [--json] [--smoke] [--rounds N] [--store s3|gcs|azure] [--only CASE]

Both places hold the same objects, 2,000 and 50,000. `skyplane-orch sync` compares them as it does
by default, rclone with `--size-only --fast-list`. In `noop-files-50k` the source is a folder of
files, once hours older than their copies and once (`-fresh`) as old, and rclone compares times, as
it does by default. Times are those of whole commands, in turn.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from bench.contest import Contest, Round, cases_of, run
from bench.peers import rclone_binary
from bench.places import NOT_OURS, TARGET, Places, open_places
from bench.report import Case

ROUNDS: Final = 7
SIZE_BYTES: Final = 100
SMOKE_OBJECTS: Final = 20

OWN, RCLONE = "sync", "rclone"
#: With a manifest: see `bench.manifest`.
_WITHOUT_ROWS: Final = ("--manifest-at", "never")
#: Number of objects -> its contest.
CONTESTS: Final = {
    2000: Contest("noop-2k", OWN, RCLONE, 6.0, 4.0),
    50_000: Contest("noop-50k", OWN, RCLONE, 1.5, 1.0),
}
#: By how many seconds copies are younger than their files -> the contest from files.
OF_FILES: Final = {
    7200.0: Contest("noop-files-50k", OWN, RCLONE, 1.0, 0.7),
    0.0: Contest("noop-files-50k-fresh", OWN, RCLONE, 1.5, 1.0),
}
FILES: Final = 50_000


def rounds_of(places: Places, rounds: int, folder: str, rclone: str | None) -> Iterator[Round]:
    for _ in range(rounds):
        row = Round()
        row.timed(
            OWN,
            map(places.seconds, [places.own("sync", f"{folder}/", f"{folder}/", *_WITHOUT_ROWS)]),
        )
        if rclone is not None:
            command = places.rclone(rclone, "sync", folder, folder, "--size-only", "--fast-list")
            row.timed(RCLONE, map(places.seconds, [command]))
        yield row


def bodies_of(folder: str, objects: int) -> Iterator[tuple[str, bytes]]:
    return ((f"{folder}/{number:05d}", bytes(SIZE_BYTES)) for number in range(objects))


def files_rounds(
    places: Places, rounds: int, younger_s: float, files: int, rclone: str | None
) -> Iterator[Round]:
    """From a folder of files to the target."""
    folder, name = places.folder / "files", f"tree-{younger_s:g}"
    for key, body in bodies_of(name, files):
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(body)
    own = [sys.executable, "-m", "skyplane_orchestration.cli", "sync", "-q", *_WITHOUT_ROWS]
    own += [f"{folder}/{name}/", f"{places.urls[1]}/{name}/", "--dst-endpoint", places.endpoints[1]]
    places.seconds(own)
    written_s = time.time() + younger_s
    for path in (places.folder / TARGET / TARGET / name).iterdir():
        os.utime(path, (written_s, written_s))
    for _ in range(rounds):
        row = Round()
        row.timed(OWN, map(places.seconds, [own]))
        if rclone is not None:
            peer = [rclone, "sync", f"{folder}/{name}", f"far:{TARGET}/{name}", "--fast-list"]
            row.timed(RCLONE, map(places.seconds, [[*peer, "--s3-no-check-bucket", *NOT_OURS]]))
        yield row
    shutil.rmtree(folder)


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
        for younger_s, contest in OF_FILES.items() if store == "s3" else ():
            if contest.case.startswith(only):
                files = SMOKE_OBJECTS if options.smoke else FILES
                made = list(files_rounds(places, rounds, younger_s, files, rclone_binary()))
                cases += cases_of([contest], made)
    return cases, rounds


def main(arguments: Sequence[str] | None = None) -> int:
    return run("rerun", __doc__, arguments, measure)


if __name__ == "__main__":
    raise SystemExit(main())
