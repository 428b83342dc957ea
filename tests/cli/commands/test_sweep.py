"""`sweep` of destinations, as the command says and does it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.journal.document import Journal, UploadRow, encode_journal
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.cli.main import main

KEY = "ab" * 16
DAY_S = 86_400


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A destination with a transfer that failed a month ago, and an old upload of nobody."""
    folder = tmp_path / "out"
    store = LocalStore(StoreSpec("file", "/"))
    key = f"{str(folder)[1:]}/deep/a"
    upload = UploadRow(key, store.create_upload(key), key, "v", 1, 1)
    journal = folder / "deep" / ".skyplane" / "jobs" / KEY / "0000000003"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(encode_journal(Journal(KEY, 3, "r", 1, uploads=(upload,))))
    store.create_upload(f"{str(folder)[1:]}/b")
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - 30 * DAY_S
        os.utime(path, (then, then))
        if path.name.endswith(".parts"):
            head = path.read_text().partition('"initiated": ')[0]
            path.write_text(f'{head}"initiated": {then}}}\n')
    return folder


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_dry_run_lists_the_removals(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(out)
    assert main(["sweep", "--destination", str(out), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert files(out) == before
    assert lines[0].startswith(
        f"would be removed: journals of transfer {KEY} in file://{out}/deep/, last written 720 h"
    )
    assert lines[1].startswith("  with upload ")
    assert lines[1].endswith(f" of file://{out}/deep/a")
    assert lines[2].startswith("kept: upload ")
    assert lines[-1].endswith("orphaned uploads would be removed: 0, kept: 1")


def test_a_sweep_removes_journals_and_uploads(
    out: Path, run_json: Callable[..., dict[str, Any]]
) -> None:
    (before,) = run_json("sweep", "--destination", str(out), "--dry-run")["destinations"]
    report = run_json("sweep", "--destination", f"file://{out}/", "--orphaned-uploads")
    (place,) = report["destinations"]
    assert [row["outcome"] for row in (*place["transfers"], *place["uploads"])] == ["removed"] * 2
    assert place["transfers"][0]["uploads"] == before["transfers"][0]["uploads"]
    assert (report["left"], files(out)) == ([], [])


def test_no_recursive_leaves_folders_below(
    out: Path, run_json: Callable[..., dict[str, Any]]
) -> None:
    report = run_json("sweep", "--destination", str(out), "--no-recursive")
    assert report["destinations"][0]["transfers"] == []
    report = run_json("sweep", "--destination", f"{out}/deep", "--no-recursive")
    assert [row["outcome"] for row in report["destinations"][0]["transfers"]] == ["removed"]


def test_a_journal_that_cannot_be_removed_fails_the_sweep(
    out: Path, run_json: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    (journal,) = (out / "deep" / ".skyplane").rglob("0*")
    written = journal.stat().st_mtime
    journal.write_bytes(b"{}")
    os.utime(journal, (written, written))
    before = files(out)
    report = run_json("sweep", "--destination", str(out), code=1)
    assert "cannot be read" in report["left"][0]
    assert files(out) == before
    assert main(["sweep", "--destination", str(out)]) == 1
    assert "things that could not be removed: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "clue"),
    [
        (["--destination", "ftp://x/"], "scheme"),
        (["--destination", "s3://"], "names no bucket"),
        (["--destination", "s3://b/", "--dst-credentials", "env:NOTHING"], "NOTHING_ACCESS"),
        (["--orphaned-uploads"], "without --destination"),
        (["--dst-endpoint", "http://x"], "without --destination"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(
    out: Path, arguments: list[str], clue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(out)
    good = ["--destination", str(out)] if arguments[0] == "--destination" else []
    assert main(["sweep", *good, *arguments]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert clue in output.err
    assert files(out) == before
