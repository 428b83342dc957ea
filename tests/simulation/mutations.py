"""Takes away one fence at a time and sees that the tests of fences fail for it.

    python -m tests.simulation.mutations [--processes 2] [NAME ...]

Works on a copy of the packages, in which a piece of the real text is replaced; a piece
that is no longer there is an error, so that this fails when the code moves on. The exit
status is 1 when a mutation survives, or when the suite fails without any.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
GATEWAY: Final = "gateway/skyplane_gateway"

#: Folders that are copied, and tests that run there until one fails.
_COPIED: Final = (
    "gateway",
    "src",
    "tests/simulation",
    "tests/gateway",
    "tests/faults",
    "tests/conftest.py",
    "tests/memory_store.py",
    "setup.cfg",
)
_SUITE: Final = (
    # A source that obeys an old lead shows in no simulation: sinks refuse its chunks.
    "tests/gateway/test_transfer_sides.py",
    "tests/simulation/test_faults.py",
    "tests/gateway/service/test_epochs.py",
    "tests/simulation/test_found.py",
)

#: Longer than the whole suite takes on a machine that has much else to do.
_TIMEOUT_S: Final = 1800


class Moved(Exception):
    """The text that a mutation replaces is not there exactly once."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One piece of text and what stands in its place."""

    path: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Raises Moved."""
        place = root / self.path
        text = place.read_text()
        if text.count(self.old) != 1:
            raise Moved(f"{self.path} has {text.count(self.old)} times {self.old!r}, not once")
        place.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fence without one of its posts."""

    fence: str
    name: str
    edits: tuple[Edit, ...]


def _mutation(fence: str, name: str, *edits: tuple[str, str, str]) -> Mutation:
    return Mutation(
        fence, name, tuple(Edit(f"{GATEWAY}/{path}", old, new) for path, old, new in edits)
    )


MUTATIONS: Final = (
    _mutation(
        "receipt deadline",
        "receipt-never-due",
        (
            "lead/chunk_delivery.py",
            "left_s = quiet_since_s + self._ack_deadline_s - loop.time()",
            "left_s = 1e9",
        ),
    ),
    _mutation(
        "receipt deadline",
        "deadline-not-passed-on",
        (
            "led_transfers.py",
            "ack_deadline_s=self._config.ack_deadline_s",
            "ack_deadline_s=1e9",
        ),
    ),
    _mutation(
        "epoch check",
        "verb-of-any-epoch",
        ("transfer_sides.py", "_refuse_stale(epoch, state.epoch)", "pass"),
    ),
    _mutation(
        "epoch check",
        "frame-of-any-epoch",
        ("sink/receiver.py", "if chunk.epoch < transfer.epoch:", "if False:"),
    ),
    _mutation(
        "epoch check",
        "order-of-any-epoch",
        ("transfer_sides.py", "_refuse_stale(epoch, source.epoch)", "pass"),
    ),
    _mutation(
        "precondition at commit",
        "put-without",
        ("sink/destination.py", "precondition=fence, crc32c=crc32c", "crc32c=crc32c"),
    ),
    _mutation(
        "precondition at commit",
        "complete-without",
        (
            "sink/destination.py",
            "precondition=self._verifier.fence(key, precondition),\n                size_bytes",
            "size_bytes",
        ),
    ),
    _mutation(
        "precondition at commit",
        "order-without",
        (
            "lead/copier.py",
            "precondition=row.precondition,\n            storage_class",
            "storage_class",
        ),
    ),
    _mutation(
        "source pinning",
        "range-of-any-version",
        (
            "source/object_reader.py",
            "offset=wanted.offset, length=wanted.length, if_match=wanted.etag",
            "offset=wanted.offset, length=wanted.length, if_match=None",
        ),
    ),
    _mutation(
        "source pinning",
        "change-not-noticed",
        (
            "lead/multipart.py",
            "return outcome.at_source and isinstance(outcome.error, PreconditionFailed)",
            "return False",
        ),
    ),
    _mutation(
        "read-back or checksum comparison",
        "never-compared",
        ("sink/write_verifier.py", "if found == crc32c:", "if True:"),
    ),
    _mutation(
        "read-back or checksum comparison",
        "not-read-back",
        (
            "sink/write_verifier.py",
            "        if found is None:\n"
            "            found = read_crc32c(self._store, info, size_bytes)",
            "        if found is None:\n            found = crc32c",
        ),
    ),
    _mutation(
        "read-back or checksum comparison",
        "journal-not-missed",
        ("lead/epoch.py", "if earlier.unreadable and keeps_unseen(spec):", "if False:"),
    ),
    _mutation(
        "read-back or checksum comparison",
        "journal-not-compared",
        (
            "journal/document.py",
            "is_sound = body[others:] == _last_field(memoryview(body)[:others])",
            "is_sound = True",
        ),
    ),
    _mutation(
        "read-back or checksum comparison",
        "frame-not-checked",
        ("protocol/assembler.py", "if crc32c(frame.payload) != span.crc32c:", "if False:"),
    ),
    _mutation(
        "read-back or checksum comparison",
        "receipt-and-frame-not-compared",
        ("protocol/assembler.py", "if crc32c(frame.payload) != span.crc32c:", "if False:"),
        ("source/outcomes.py", "if entry.crc32c != crc32c:", "if False:"),
    ),
    _mutation(
        "read-back or checksum comparison",
        "source-not-compared",
        ("lead/multipart.py", "if info.crc32c not in (None, crc32c):", "if False:"),
    ),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the suite said of a mutation.

    Attributes:
        failed: the tests that failed; none when the mutation has survived.
        trouble: why nothing can be said.
    """

    failed: tuple[str, ...]
    took_s: float
    trouble: str = ""


def judge(mutation: Mutation | None, root: Path = ROOT) -> Verdict:
    """Run the suite on a copy with that mutation; None for the code as it is."""
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutation-") as place:
        copy = Path(place)
        _copy(root, copy)
        try:
            for edit in mutation.edits if mutation is not None else ():
                edit.apply(copy)
        except Moved as error:
            return Verdict((), 0.0, str(error))
        try:
            status, text = _run_suite(copy)
        except subprocess.TimeoutExpired:
            return Verdict((), _TIMEOUT_S, "the suite did not end")
    took_s = time.perf_counter() - began_s
    failed = tuple(re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE))
    if status not in (0, 1) or (status == 1 and not failed):
        return Verdict(failed, took_s, f"pytest ended with {status}: {text[-2000:]}")
    return Verdict(failed, took_s)


def _copy(root: Path, copy: Path) -> None:
    for name in _COPIED:
        source, target = root / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def _run_suite(copy: Path) -> tuple[int, str]:
    """pytest's status and what it printed, of the packages in `copy` and no others."""
    roots = os.pathsep.join(str(copy / name) for name in ("gateway", "src", "."))
    environment = {**os.environ, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    program = (
        "import sys, pytest, skyplane_gateway as g, skyplane_orchestration as o\n"
        f"assert all(m.__file__.startswith({str(copy)!r}) for m in (g, o)), (g, o)\n"
        "sys.exit(pytest.main(sys.argv[1:]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "-x", "-q", "-p", "no:cacheprovider", *_SUITE],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def chosen(names: Sequence[str]) -> tuple[Mutation, ...]:
    """Those of the names; all when none is given."""
    unknown = set(names) - {mutation.name for mutation in MUTATIONS}
    if unknown:
        raise SystemExit(f"there is no mutation {', '.join(sorted(unknown))}")
    return tuple(row for row in MUTATIONS if not names or row.name in names)


def report(verdicts: Iterable[tuple[Mutation | None, Verdict]]) -> int:
    """Print a line for each; 1 when one is not as it has to be."""
    wrong = 0
    for mutation, verdict in verdicts:
        name = "as it is" if mutation is None else f"{mutation.fence}: {mutation.name}"
        is_right = bool(verdict.failed) == (mutation is not None) and not verdict.trouble
        wrong += not is_right
        if verdict.trouble:
            what = f"TROUBLE {verdict.trouble}"
        elif verdict.failed:
            what = f"{'KILLED by' if mutation else 'FAILS:'} {verdict.failed[0]}"
        else:
            what = "SURVIVED" if mutation else "passes"
        print(f"{verdict.took_s:6.1f} s  {name:55} {what}", flush=True)
    return int(wrong > 0)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="mutations; all when none is given")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    wanted = parser.parse_args(arguments)
    cases: list[Mutation | None] = [None, *chosen(wanted.names)]
    with ThreadPoolExecutor(wanted.processes) as threads:
        return report(zip(cases, threads.map(judge, cases), strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
