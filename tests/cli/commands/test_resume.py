"""`skyplane-orch resume` finds its handle, and refuses bad ones."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.transfer.samples import fleet_of

from skyplane_orchestration.cli.commands.resume import _read_handle
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.handle_files import handle_directory, save_handle
from skyplane_orchestration.cli.main import _report, build_parser, main
from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import CloudAccessDenied, ConfigurationInvalid, TransferFailed
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import PREFIX, RESUME_TTL_S, ResumeHandle
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.provision.local import LocalProvisioner


@pytest.fixture
def state(private_home: Path) -> Path:
    """Where this user's state is; not made yet."""
    return private_home / "state"


@pytest.fixture
def handle(tmp_path: Path) -> ResumeHandle:
    """One that is alive, between two folders."""
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    ends = (Location(f"{tmp_path}/in/", "local:here"), Location(f"{tmp_path}/out/", "local:here"))
    job = TransferJob(*ends, MinimizeCost(1.0), volume_gb=1.0)
    return ResumeHandle(job, Client().plan(job), "ab" * 16, 0, "local", "cd" * 16, 1, 4e9)


def test_a_handle_is_read_from_argument_file_or_json(tmp_path: Path) -> None:
    word = PREFIX + "abc"
    assert _read_handle(word) == word
    file = tmp_path / "handle"
    for text in (
        f"{word}\n",
        json.dumps({"resume_handle": word}),
        json.dumps({"error": {}, "result": {"resume_handle": word}}),
    ):
        file.write_text(text)
        assert _read_handle(str(file)) == word
    for text in (json.dumps({"resume_handle": ""}), "{", json.dumps({"result": []})):
        file.write_text(text)
        with pytest.raises(ConfigurationInvalid):
            _read_handle(str(file))


@pytest.mark.parametrize("handle", ["nowhere", "", " ", "3f9c2a1b", "/", PREFIX + "abc", "-"])
def test_an_invalid_handle_is_bad_input(
    handle: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.StringIO("nothing of the kind"))
    assert main(["resume", handle]) == 2
    captured = capsys.readouterr()
    assert "resume handle" in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


# ---------------------------------------------------------------- short ids


def failed(handle: str) -> TransferFailed:
    return TransferFailed(
        "2 of 3 objects failed",
        result=SimpleNamespace(
            resume_handle=handle, failures=(), to_dict=lambda: {"resume_handle": handle}
        ),
    )


def report(handle: str, *words: str, is_json: bool = False) -> None:
    options = build_parser("cp").parse_args(["cp", "a", "b", *words])
    assert _report(failed(handle), Console(is_json=is_json, is_quiet=False), 1, options) == 1


def test_a_failed_transfer_prints_a_short_id_and_keeps_its_handle(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = PREFIX + "x" * 1400
    report(word)
    said = capsys.readouterr().err.splitlines()
    match = re.fullmatch(
        "skyplane-orch: to resume it within 24 h: skyplane-orch resume ([0-9a-f]{8})", said[-1]
    )
    assert match is not None, said
    [kept] = (state / "skyplane-orch" / "resume").iterdir()
    assert kept.name == match[1]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert _read_handle(match[1]) == word


def test_the_printed_command_has_the_options_of_the_fleet(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--provisioner", "cloud", "--clouds", "clouds.yaml", "--deployment", "prod")
    report(PREFIX + "abc", *where, "--lease-s", "60")
    (last,) = capsys.readouterr().err.splitlines()[-1:]
    assert re.search("skyplane-orch resume [0-9a-f]{8} " + " ".join(where) + "$", last), last


def test_with_json_the_handle_is_only_in_the_result(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(PREFIX + "abc", is_json=True)
    said = capsys.readouterr()
    assert json.loads(said.out)["result"]["resume_handle"] == PREFIX + "abc"
    assert "resume" not in said.err
    assert not state.exists()


def test_without_a_handle_there_is_no_hint(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report("")
    assert "resume" not in capsys.readouterr().err
    assert not state.exists()


def test_expired_handles_are_deleted_and_other_files_stay(state: Path) -> None:
    now = 1e9
    old, young = save_handle("old", now), save_handle("young", now)
    folder = handle_directory()
    (folder / "notes").touch()
    for name, age_s in ((old, RESUME_TTL_S + 1), (young, RESUME_TTL_S - 1), ("notes", 1e8)):
        os.utime(folder / name, (now - age_s, now - age_s))
    new = save_handle("new", now)
    assert {path.name for path in folder.iterdir()} == {young, "notes", new}


def test_a_folder_that_cannot_be_written_is_named(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state.write_text("not a folder")
    report(PREFIX + "abc")
    said = capsys.readouterr().err
    assert f"{state}/skyplane-orch/resume cannot be written" in said
    assert "--json" in said
    assert PREFIX not in said


def test_a_transfer_with_credentials_of_airflow_is_resumed_there(
    handle: ResumeHandle, capsys: pytest.CaptureFixture[str]
) -> None:
    source = replace(handle.job.source, credential_ref="airflow:minio")
    theirs = replace(handle, job=replace(handle.job, source=source))
    assert main(["resume", theirs.to_text()]) == 2
    said = capsys.readouterr().err
    assert "clear its task in Airflow" in said
    assert said.count("\n") == 1


def test_a_used_handle_is_deleted(
    state: Path, handle: ResumeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = save_handle(handle.to_text(), time.time())
    given: list[ResumeHandle] = []

    def resume(client: Client, found: ResumeHandle, **_: Any) -> Any:
        given.append(found)
        return SimpleNamespace(to_dict=dict)

    monkeypatch.setattr(Client, "resume", resume)
    assert main(["resume", name, "--json"]) == 0
    assert given == [handle]
    assert list(handle_directory().iterdir()) == []


def test_a_used_handle_that_cannot_be_deleted_is_not_an_error(
    state: Path, handle: ResumeHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = save_handle(handle.to_text(), time.time())

    def refuse(path: Path, **_: Any) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Client, "resume", lambda *_, **__: SimpleNamespace(to_dict=dict))
    monkeypatch.setattr(Path, "unlink", refuse)
    assert main(["resume", name, "--json"]) == 0


def test_a_handle_is_saved_while_another_command_deletes_files(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (handle_directory() / "0123abcd").parent.mkdir(parents=True)
    (handle_directory() / "0123abcd").symlink_to("gone")
    name = save_handle("new", time.time())
    assert (handle_directory() / name).read_text() == "new\n"


@pytest.mark.parametrize("given", ["x" + PREFIX + "a" * 1400, "01234567/../../secret", "0" * 8])
def test_an_argument_that_is_no_id_handle_or_file_is_one_line(
    state: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", given]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_id_in_a_folder_that_cannot_be_read_is_one_line(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looked_at = os.stat

    def closed(path: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(str(state)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return looked_at(path, **more)

    monkeypatch.setattr(os, "stat", closed)
    assert main(["resume", "01234567"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_interrupted_resume_on_a_running_fleet_leaves_the_transfer_running(
    handle: ResumeHandle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def resume(
        client: Client, found: ResumeHandle, *, on_fleet: Any, on_status: Any, **_: Any
    ) -> None:
        on_fleet(fleet_of("a"))
        on_status(TransferStatus("ab" * 16, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "resume", resume)
    monkeypatch.setattr(LocalProvisioner, "describe", lambda *_: ("a gateway",))
    assert main(["resume", handle.to_text(), "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["result"]["state"] == "running"


def test_an_interruption_is_reported_although_the_fleet_cannot_be_asked_for(
    handle: ResumeHandle, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resume(client: Client, found: ResumeHandle, **_: Any) -> Any:
        raise KeyboardInterrupt

    def describe(provisioner: LocalProvisioner, key: str) -> Any:
        raise CloudAccessDenied("AWS refuses ec2:DescribeInstances (ExpiredToken)")

    monkeypatch.setattr(Client, "resume", resume)
    monkeypatch.setattr(LocalProvisioner, "describe", describe)
    assert main(["resume", handle.to_text(), "--deployment", "prod"]) == 130
    said = capsys.readouterr().err
    command = f"skyplane-orch teardown --fleet-key {handle.fleet_key} --deployment prod"
    assert "ExpiredToken" in said
    assert said.splitlines()[-2].endswith(f"to end it: {command}")
    assert said.splitlines()[-1].endswith("interrupted")
