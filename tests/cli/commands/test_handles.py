"""`handles` lists what `resume` finds by its id."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.cli.conftest import RunJson

from skyplane_orchestration.cli.handle_files import handle_directory, save_handle
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import ResumeHandle


def handle_of(name: str, expires_unix_s: float) -> str:
    ends = Location(f"/in/{name}/", "local:here"), Location("/out/", "local:here")
    job = TransferJob(*ends, MinimizeCost(1.0), volume_gb=1.0)
    plan = Client().plan(job)
    return ResumeHandle(job, plan, "ab" * 16, 0, "local", "cd" * 16, 1, expires_unix_s).to_text()


def test_no_handle(capsys: pytest.CaptureFixture[str], run_json: RunJson) -> None:
    assert run_json("handles") == {"handles": []}
    assert main(["handles"]) == 0
    assert "nothing to resume" in capsys.readouterr().out


def test_handles_are_listed_the_newest_first(
    capsys: pytest.CaptureFixture[str], run_json: RunJson
) -> None:
    now = time.time()
    ids = [
        save_handle(handle_of("live", now + 3600), now),
        save_handle(handle_of("expired", now - 1), now),
        save_handle("skyplane-resume:damaged", now),
    ]
    for age, name in enumerate(ids):
        os.utime(handle_directory() / name, (now - age, now - age))
    (handle_directory() / "note.txt").write_text("not a handle")
    rows = run_json("handles")["handles"]
    assert [(row["id"], row["state"]) for row in rows] == list(
        zip(ids, ("live", "expired", "damaged"), strict=True)
    )
    assert (rows[0]["source"], rows[0]["destination"]) == ("file:///in/live/", "file:///out/")
    assert main(["handles"]) == 0
    text = capsys.readouterr().out
    assert f"{ids[0]}  59 min" in text or f"{ids[0]}  1 h 0 min" in text
    assert "skyplane-orch resume ID" in text


def test_an_old_file_is_left_out(run_json: RunJson, private_home: Path) -> None:
    now = time.time()
    name = save_handle(handle_of("old", now + 3600), now)
    os.utime(handle_directory() / name, (now - 90_000, now - 90_000))
    assert run_json("handles") == {"handles": []}
