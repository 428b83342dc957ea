"""Runs that use what the destination remembers: the second `sync`, beside rclone, aws and DVC.

    python -m bench.manifest [--json] [--smoke] [--rounds N] [--rows ROW,ROW]

`exact-noop-50k`: `sync` of equal objects, beside rclone with `--size-only --fast-list`; the ETags
differ, so that only the manifest shows that objects are equal. `trusted-noop-50k`: with
`--trust-manifest`, beside the faster of two listings of the source. `noop-download-1k`: CPU
seconds. `artiv` and `million`: see the modules of that name. `commit`: seconds that the manifest
adds to a run. Times are those of whole commands, in turn.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from bench.artiv import (
    ARTIV,
    OWN,
    RCLONE,
    TRUST_OPTIONS,
    TRUSTING,
    artiv_cases,
    write_files,
)
from bench.contest import Contest, Round, cases_of, run
from bench.million import MILLION, million_cases
from bench.peers import rclone_binary
from bench.places import NOT_OURS, SOURCE, TARGET, Places, open_places
from bench.report import Case, spread_of

ROUNDS: Final = 3
#: A difference of two medians needs more.
COMMIT_ROUNDS: Final = 7
SIZE_BYTES: Final = 100

NO_MANIFEST: Final = ("--manifest-at", "never")

OWN_LISTING, RCLONE_LISTING, LISTING = "ls", "rclone lsf", "the faster listing"
WITHOUT: Final = "sync without a manifest"

EXACT: Final = Contest("exact-noop-50k", OWN, RCLONE, 1.3, 1.0)
TRUSTED: Final = Contest("trusted-noop-50k", TRUSTING, LISTING, 1.5, 1.2)
LISTINGS: Final = Contest("own-listing-50k", OWN_LISTING, RCLONE_LISTING, None, None)
DOWNLOAD: Final = Contest("noop-download-1k", OWN, RCLONE, 2.0, 1.0, unit="x cpu")
COMMIT: Final = "commit"
ROWS: Final = (EXACT.case, TRUSTED.case, DOWNLOAD.case, ARTIV, MILLION, COMMIT)


@dataclass(frozen=True, slots=True)
class Sizes:
    many: int = 50_000
    few: int = 1000
    million: int = 1_000_000


SMOKE: Final = Sizes(20, 10, 1000)


def fill(places: Places, folder: str, objects: int) -> None:
    """Write objects to the source: files of its server, with the ETags that S3 would give them."""
    target = places.folder / SOURCE / SOURCE / folder
    target.mkdir()
    for number in range(objects):
        body = number.to_bytes(SIZE_BYTES, "big")
        path = target / f"{number:05d}"
        path.write_bytes(body)
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        os.setxattr(path, "user.etag", etag.encode())


def many_rounds(
    places: Places, rounds: int, rows: Sequence[str], objects: int, rclone: str | None
) -> Iterator[Round]:
    """The first `sync` makes the copies and the manifest; it is in no round."""
    fill(places, "many", objects)
    own = places.own("sync", "many/", "many/")
    places.seconds(own)
    listed = [sys.executable, "-m", "skyplane_orchestration.cli", "ls", "-q", "-r"]
    listed += [f"{places.urls[0]}/many/", "--src-endpoint", places.endpoints[0]]
    for _ in range(rounds):
        row = Round()
        if EXACT.case in rows:
            row.timed(OWN, map(places.seconds, [own]))
            if rclone is not None:
                other = places.rclone(rclone, "sync", "many", "many", "--size-only", "--fast-list")
                row.timed(RCLONE, map(places.seconds, [[*other, *NOT_OURS]]))
        if TRUSTED.case in rows:
            row.timed(TRUSTING, map(places.seconds, [[*own, *TRUST_OPTIONS]]))
            row.timed(OWN_LISTING, map(places.seconds, [listed]))
            if rclone is not None:
                other = [rclone, "lsf", "-R", "--fast-list", f"near:{SOURCE}/many"]
                row.timed(RCLONE_LISTING, map(places.seconds, [other]))
            row.add_better(LISTING, OWN_LISTING, RCLONE_LISTING)
        yield row


def download_rounds(
    places: Places, rounds: int, objects: int, rclone: str | None
) -> Iterator[Round]:
    """CPU seconds. Objects are copies of old files; each command has filled its own folder."""
    write_files(places.folder / "files", objects, SIZE_BYTES)
    own = [sys.executable, "-m", "skyplane_orchestration.cli", "sync", "-q"]
    up = [f"{places.folder}/files/", f"{places.urls[0]}/download/", "--dst-endpoint"]
    places.seconds([*own, *up, places.endpoints[0]])
    down = places.folder / "down"
    own += [f"{places.urls[0]}/download/", f"{down / 'own'}/", "--src-endpoint"]
    commands = {OWN: [*own, places.endpoints[0]]}
    if rclone is not None:
        commands[RCLONE] = [rclone, "sync", f"near:{SOURCE}/download", str(down / "rclone")]
    for command in commands.values():
        places.seconds(command)
    for _ in range(rounds):
        row = Round()
        for name, command in commands.items():
            row.timed(name, map(places.cpu_s, [command]))
        yield row
    shutil.rmtree(down)


def commit_rounds(places: Places, rounds: int, objects: int) -> Iterator[Round]:
    """Each command writes to a folder of its own; they take turns at being the first one."""
    fill(places, "commit", objects)
    ways: list[tuple[str, tuple[str, ...]]] = [(OWN, ()), (WITHOUT, NO_MANIFEST)]
    numbers = count()
    for _ in range(rounds):
        row = Round()
        for name, options in ways:
            target = f"commit-{next(numbers)}"
            command = places.own("sync", "commit/", f"{target}/", *options)
            row.timed(name, map(places.seconds, [command]))
            shutil.rmtree(places.folder / TARGET / TARGET / target)
        ways.reverse()
        yield row


def commit_case(rounds: Sequence[Round]) -> Case:
    """The difference of the medians; the spread is that of the slower command's runs."""
    times = {name: [row.seconds[name] for row in rounds] for name in (OWN, WITHOUT)}
    middles = {name: statistics.median(values) for name, values in times.items()}
    return Case(
        COMMIT,
        middles[OWN] - middles[WITHOUT],
        "s",
        against=WITHOUT,
        floor=0.3,
        goal=0.1,
        spread=max(map(spread_of, times.values())),
        seconds={name: round(value, 3) for name, value in middles.items()},
    )


def measure(options: argparse.Namespace) -> tuple[list[Case], int]:
    """The cases of the rows, and the number of rounds."""
    rows, sizes = options.rows, SMOKE if options.smoke else Sizes()
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    rclone = rclone_binary()
    cases: list[Case] = []
    with open_places("s3") as places:
        if {EXACT.case, TRUSTED.case} & set(rows):
            made = list(many_rounds(places, rounds, rows, sizes.many, rclone))
            cases += cases_of((EXACT, TRUSTED, LISTINGS), made)
        if DOWNLOAD.case in rows:
            made = list(download_rounds(places, rounds, sizes.few, rclone))
            cases += cases_of([DOWNLOAD], made)
        if COMMIT in rows:
            of_commit = 1 if options.smoke else options.rounds or COMMIT_ROUNDS
            cases.append(commit_case(list(commit_rounds(places, of_commit, sizes.few))))
    if ARTIV in rows:
        cases += artiv_cases(rounds, rclone, is_smoke=options.smoke)
    if MILLION in rows:
        cases += million_cases(rounds, sizes.million)
    return cases, rounds


def main(arguments: Sequence[str] | None = None) -> int:
    return run("manifest", __doc__, arguments, measure, ROWS)


if __name__ == "__main__":
    raise SystemExit(main())
