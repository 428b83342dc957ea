"""What `--json` prints when a run is told to end: one object, with what was done by then."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import ResumeHandle
from skyplane_orchestration.model.status import TransferStatus, empty_status
from skyplane_orchestration.provision.base import FoundGateway
from skyplane_orchestration.provision.local import LocalProvisioner

SEEN = replace(empty_status("ab" * 16, 1), objects=5, copied=3, copied_bytes=300, unfinished=2)

Interrupt = Callable[..., None]


@pytest.fixture
def handle(tmp_path: Path) -> ResumeHandle:
    """Of a transfer between two folders."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "one").write_bytes(b"1")
    ends = (Location(f"{tmp_path}/in/", "local:here"), Location(f"{tmp_path}/out/", "local:here"))
    job = TransferJob(*ends, MinimizeCost(1.0), volume_gb=1.0)
    return ResumeHandle(job, Client().plan(job), "ab" * 16, 0, "local", "cd" * 16, 1, 4e9)


@pytest.fixture
def interrupt(handle: ResumeHandle, monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Interrupts the transfer after it has reported a fleet and the given states."""
    fleet = Fleet("ab" * 16, 0, "local", "local", handle.plan, (), (), "h/b", 0.5, 4e9)

    def arrange(*statuses: TransferStatus) -> None:
        def move(*_: Any, on_fleet: Any, on_status: Any, **__: Any) -> None:
            on_fleet(fleet)
            for status in statuses:
                on_status(status)
            raise KeyboardInterrupt

        monkeypatch.setattr(Client, "run", move)
        monkeypatch.setattr(Client, "resume", move)

    return arrange


@pytest.mark.parametrize("verb", ["cp", "resume"])
def test_the_object_tells_what_was_copied(
    verb: str, handle: ResumeHandle, interrupt: Interrupt, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(empty_status("ab" * 16, 1), SEEN)
    job = handle.job
    words = ["-r", job.source.url, job.destination.url] if verb == "cp" else [handle.to_text()]
    assert main([verb, *words, "--json"]) == 130
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["error"]["code"] == "interrupted"
    result = document["result"]
    assert (result["state"], result["error_code"]) == ("cancelled", "interrupted")
    assert (result["objects"], result["copied"], result["copied_bytes"]) == (5, 3, 300)
    assert result["resume_handle"] == ""
    assert said.err.splitlines()[-1] == "skyplane-orch: interrupted"


def test_a_resume_on_a_fleet_that_stays_up_leaves_its_transfer_running(
    handle: ResumeHandle,
    interrupt: Interrupt,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupt(SEEN)
    monkeypatch.setattr(LocalProvisioner, "find", lambda *_: (FoundGateway("local:here/0"),))
    assert main(["resume", handle.to_text(), "--json"]) == 130
    result = json.loads(capsys.readouterr().out)["result"]
    assert (result["state"], result["copied"]) == ("running", 3)


def test_what_had_ended_before_is_told_as_it_ended(
    handle: ResumeHandle, interrupt: Interrupt, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(replace(SEEN, state="succeeded", copied=5, unfinished=0))
    job = handle.job
    assert main(["cp", "-r", job.source.url, job.destination.url, "--json"]) == 130
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["code"] == "interrupted"
    assert (document["result"]["state"], document["result"]["error"]) == ("succeeded", "")


def test_before_anything_is_known_there_is_no_result(
    handle: ResumeHandle, interrupt: Interrupt, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt()
    job = handle.job
    for more, document in (
        (["--json"], {"error": {"code": "interrupted", "message": "interrupted"}}),
        ([], None),
    ):
        assert main(["cp", "-r", job.source.url, job.destination.url, *more]) == 130
        output = capsys.readouterr().out
        if document is None:
            assert output == ""
        else:
            document["error"]["is_permanent"] = False  # type: ignore[assignment]
            assert json.loads(output) == document
