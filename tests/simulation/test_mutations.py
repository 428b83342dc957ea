"""The suite fails for every fence that is taken away, and for nothing else.

A mutation replaces pieces of the real text in a copy of the packages. A piece that is no longer
there fails a test at once, so that the mutations move on with the code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
GATEWAY: Final = Path("gateway/skyplane_gateway")
#: All that a copy has, and the tests that run there until one fails.
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

#: Path, text, and what stands in its place.
Edit = tuple[str, str, str]
_FRAME: Final[Edit] = (
    "protocol/assembler.py",
    "if crc32c(frame.payload) != span.crc32c:",
    "if False:",
)

#: Fence -> name of a mutation -> its edits.
FENCES: Final[dict[str, dict[str, tuple[Edit, ...]]]] = {
    "receipt deadline": {
        "receipt-never-due": (
            (
                "lead/chunk_delivery.py",
                "left_s = quiet_since_s + self._ack_deadline_s - loop.time()",
                "left_s = 1e9",
            ),
        ),
        "deadline-not-passed-on": (
            (
                "led_transfers.py",
                "ack_deadline_s=self._config.ack_deadline_s",
                "ack_deadline_s=1e9",
            ),
        ),
    },
    "epoch check": {
        "verb-of-any-epoch": (("transfer_sides.py", "_refuse_stale(epoch, state.epoch)", "pass"),),
        "frame-of-any-epoch": (("sink/receiver.py", "if epoch >= transfer.epoch:", "if True:"),),
        "order-of-any-epoch": (
            ("transfer_sides.py", "_refuse_stale(epoch, source.epoch)", "pass"),
        ),
    },
    "precondition at commit": {
        "put-without": (
            ("sink/destination.py", "precondition=fence, crc32c=crc32c", "crc32c=crc32c"),
        ),
        "complete-without": (
            (
                "sink/destination.py",
                "precondition=self._verifier.fence(key, precondition),\n                size_bytes",
                "size_bytes",
            ),
        ),
        "order-without": (
            (
                "lead/copier.py",
                "precondition=row.precondition,\n            storage_class",
                "storage_class",
            ),
        ),
    },
    "source pinning": {
        "range-of-any-version": (
            (
                "source/object_reader.py",
                "offset=wanted.offset, length=wanted.length, if_match=wanted.etag",
                "offset=wanted.offset, length=wanted.length, if_match=None",
            ),
        ),
        "change-not-noticed": (
            (
                "lead/multipart.py",
                "return outcome.at_source and isinstance(outcome.error, PreconditionFailed)",
                "return False",
            ),
        ),
    },
    "read-back or checksum comparison": {
        "never-compared": (("sink/write_verifier.py", "if found == crc32c:", "if True:"),),
        "not-read-back": (
            (
                "sink/write_verifier.py",
                "if found is None:\n            found = read_crc32c(self._store, info, size_bytes)",
                "if found is None:\n            found = crc32c",
            ),
        ),
        "journal-not-missed": (
            ("lead/epoch.py", "if earlier.unreadable and keeps_unseen(spec):", "if False:"),
        ),
        "journal-not-compared": (
            (
                "journal/document.py",
                "is_sound = body[others:] == _last_field(memoryview(body)[:others])",
                "is_sound = True",
            ),
        ),
        "frame-not-checked": (_FRAME,),
        "receipt-and-frame-not-compared": (
            _FRAME,
            ("source/outcomes.py", "if entry.crc32c != crc32c:", "if False:"),
        ),
        "source-not-compared": (
            ("lead/multipart.py", "if info.crc32c not in (None, crc32c):", "if False:"),
        ),
    },
}
MUTATIONS: Final = {name: edits for fence in FENCES.values() for name, edits in fence.items()}


def apply(edit: Edit, root: Path) -> None:
    """Raises AssertionError where the text is not there exactly once."""
    path, old, new = edit
    place = root / GATEWAY / path
    text = place.read_text()
    assert text.count(old) == 1, edit
    place.write_text(text.replace(old, new))


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_a_mutation_replaces_is_there_once(name: str, tmp_path: Path) -> None:
    for path, *text in MUTATIONS[name]:
        copy = tmp_path / GATEWAY / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / GATEWAY / path, copy)
        apply((path, *text), tmp_path)  # type: ignore[arg-type]
        assert copy.read_text() != (ROOT / GATEWAY / path).read_text()


def test_every_fence_has_two_mutations_at_least() -> None:
    assert all(len(mutations) >= 2 for mutations in FENCES.values())


@pytest.mark.soak
@pytest.mark.parametrize("name", ["", *MUTATIONS])
def test_the_suite_fails_for_every_mutation(name: str, tmp_path: Path) -> None:
    """The packages are those of the copy, and no others."""
    for copied in _COPIED:
        source, target = ROOT / copied, tmp_path / copied
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for edit in MUTATIONS.get(name, ()):
        apply(edit, tmp_path)
    roots = os.pathsep.join(str(tmp_path / root) for root in ("gateway", "src", "."))
    environment = {**os.environ, "PYTHONPATH": roots, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    program = (
        "import sys, pytest, skyplane_gateway as g, skyplane_orchestration as o\n"
        f"assert all(m.__file__.startswith({str(tmp_path)!r}) for m in (g, o)), (g, o)\n"
        "sys.exit(pytest.main(sys.argv[1:]))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, "-x", "-q", "-p", "no:cacheprovider", *_SUITE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    said = ended.stdout + ended.stderr
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    assert (ended.returncode, bool(failed)) == (bool(name), bool(name)), said[-2000:]
    print(name, *failed)
