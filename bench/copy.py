"""Duration of copies of large objects between two places, beside rclone and s5cmd.

    python -m bench.copy [--json] [--smoke] [--rounds N] [--store s3|gcs|azure]

Each round runs in turn: `skyplane-orch cp -r` of 16 objects of 64 MiB; `cp` of one object of
1 GiB; rclone as it is, and on S3 in parts of 8 MiB; s5cmd down to memory and up again. Times are
those of whole commands.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from bench.contest import Contest, Round, cases_of, run
from bench.peers import rclone_binary, s5cmd_binary
from bench.places import SOURCE, TARGET, Places, open_places
from bench.report import Case

ROUNDS: Final = 5
OBJECTS, OBJECT_BYTES = 16, 64 << 20
SMOKE_OBJECTS, SMOKE_BYTES = 2, 9 << 20

OWN, RCLONE, PARTS, S5CMD = "cp", "rclone", "rclone in parts", "s5cmd down and up"
ONE: Final = "cp of one object"
CONTESTS: Final = (
    Contest("copy-vs-rclone", OWN, RCLONE, 1.5, 1.0),
    Contest("copy-vs-rclone-multipart", OWN, PARTS, 1.0, 0.7),
    Contest("copy-vs-s5cmd", OWN, S5CMD, 0.9, 0.7),
    Contest("one-large", ONE, OWN, 1.5, 1.1),
)

_IN_PARTS: Final = ("--s3-upload-cutoff", "8M", "--s3-chunk-size", "8M")


def rounds_of(
    places: Places, rounds: int, objects: int, rclone: str | None, s5cmd: str | None
) -> Iterator[Round]:
    """Each command writes to a folder of its own."""
    numbers = count()
    for _ in range(rounds):
        row = Round()

        def timed(
            name: str, *commands: Sequence[str], row: Round = row, written: int = objects
        ) -> None:
            row.timed(name, map(places.seconds, commands))
            places.remove_copies(written)

        def target() -> str:
            return f"copy-{next(numbers)}"

        timed(OWN, places.own("cp", "large/", f"{target()}/", "-r"))
        timed(ONE, places.own("cp", "one", target()), written=1)
        if rclone is not None:
            timed(RCLONE, places.rclone(rclone, "copy", "large", target()))
            if places.store == "s3":
                timed(PARTS, places.rclone(rclone, "copy", "large", target(), *_IN_PARTS))
        if s5cmd is not None and places.store == "s3":
            local = f"{places.folder / 'down'}/"
            near, far = places.endpoints
            timed(
                S5CMD,
                [s5cmd, "--endpoint-url", near, "cp", f"s3://{SOURCE}/large/*", local],
                [s5cmd, "--endpoint-url", far, "cp", local, f"s3://{TARGET}/{target()}/"],
            )
            shutil.rmtree(local)
        yield row


def bodies_of(objects: int, size_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Keys and bodies; every body differs from the others."""
    block = random.Random(1).randbytes(1 << 20)
    for number in range(objects):
        body = number.to_bytes(4, "big") + block * (size_bytes // len(block) + 1)
        yield f"large/{number:02d}", body[:size_bytes]


def measure(options: argparse.Namespace) -> tuple[list[Case], int]:
    """All cases, and the number of rounds."""
    work = (SMOKE_OBJECTS, SMOKE_BYTES) if options.smoke else (OBJECTS, OBJECT_BYTES)
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    with open_places(options.store) as places:
        places.fill(0, bodies_of(*work))
        [(_, one)] = bodies_of(1, work[0] * work[1])
        places.fill(0, iter([("one", one)]))
        made = list(rounds_of(places, rounds, work[0], rclone_binary(), s5cmd_binary()))
    return cases_of(CONTESTS, made, store=options.store), rounds


def main(arguments: Sequence[str] | None = None) -> int:
    return run("copy", __doc__, arguments, measure)


if __name__ == "__main__":
    raise SystemExit(main())
