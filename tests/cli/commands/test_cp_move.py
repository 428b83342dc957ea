"""`cp` and `transfer` clean up after failures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tests.fake_client import FakeClient
from tests.transfer.samples import fleet_of

from skyplane_orchestration.cli.commands import cp, transfer
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.exit_codes import BadInput
from skyplane_orchestration.cli.main import build_parser, main
from skyplane_orchestration.cli.progress import TransferProgress
from skyplane_orchestration.errors import (
    CloudAccessDenied,
    ConfigurationInvalid,
    FleetLost,
    ForeignHost,
    TransferFailed,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location

JOB = TransferJob(Location("s3://a/x/"), Location("s3://b/y/"))
QUIET = Console(is_json=True, is_quiet=True)
FLEET = fleet_of("a")


def test_sync_looks_below_a_prefix_and_at_differences() -> None:
    parser = build_parser()
    sync = parser.parse_args(["sync", "s3://a/x", "s3://b/y"])
    plain = parser.parse_args(["cp", "s3://a/x", "s3://b/y"])
    assert (sync.recursive, sync.conflict) == (True, "replace-if-different")
    assert (plain.recursive, plain.conflict) == (False, "replace")
    assert sync.run_command is plain.run_command


def test_a_move_is_of_cp_alone_and_needs_verification(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_bytes(b"1")
    ends = [f"{tmp_path}/in", f"{tmp_path}/out"]
    for arguments, words in (
        (["sync", *ends, "--move"], "--move"),
        (["cp", "-r", *ends, "--move", "--no-verify"], "must be verified"),
        (["cp", "-r", ends[0], f"{tmp_path}", "--move"], "a folder above it"),
    ):
        assert main(arguments) == 2
        assert words in capsys.readouterr().err
    assert (tmp_path / "in/a").exists()


def copy(client: Any, *words: str) -> None:
    options = build_parser("cp").parse_args(["cp", "a", "b", *words])
    progress = TransferProgress(JOB, QUIET)
    cp._copy(client, client.job_run(JOB), None, options, progress)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ConfigurationInvalid("no"), ForeignHost("elsewhere")])
def test_a_refusal_of_provisioning_is_bad_input(error: Exception) -> None:
    with pytest.raises(BadInput):
        copy(FakeClient(errors={"provision": [error]}))
    with pytest.raises(type(error)):
        copy(FakeClient(errors={"run": [error]}))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FleetLost("gone"), RuntimeError("a bug")])
def test_a_fleet_left_by_an_interruption_is_torn_down(error: BaseException) -> None:
    client = FakeClient(errors={"provision": [error]}, found=("gateway",))
    with pytest.raises(type(error)):
        copy(client)
    assert client.keys("teardown") == [client.identity.fleet_key()]


def test_nothing_is_torn_down_twice() -> None:
    client = FakeClient(errors={"run": [KeyboardInterrupt()]})
    with pytest.raises(KeyboardInterrupt):
        copy(client)
    assert client.verbs == ["run"]


@pytest.mark.parametrize("error", [TransferFailed("2 objects failed"), KeyboardInterrupt()])
def test_the_error_of_a_copy_survives_a_cloud_that_cannot_be_asked(
    error: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The credentials expire during a copy: the resume handle must still be printed."""
    refused = CloudAccessDenied("AWS refuses ec2:DescribeInstances (ExpiredToken)")
    cloud = SimpleNamespace(describe=Mock(side_effect=refused))
    monkeypatch.setattr(FakeClient, "provisioner", cloud)
    client = FakeClient(errors={"run": [error]})
    where = ("--provisioner", "cloud", "--clouds", "clouds.yaml", "--deployment", "prod")
    with pytest.raises(type(error)):
        copy(client, *where)
    said = capsys.readouterr().err
    assert "ExpiredToken" in said
    command = f"skyplane-orch teardown --fleet-key {client.identity.fleet_key()}"
    assert f"{command} {' '.join(where)}\n" in said


def move(client: Any) -> None:
    transfer._move(client, JOB, FLEET, None, QUIET)


def test_an_interrupted_transfer_is_cancelled_and_keeps_its_fleet() -> None:
    client = FakeClient(errors={"finish": [KeyboardInterrupt()]})
    with pytest.raises(KeyboardInterrupt):
        move(client)
    assert client.verbs == ["submit", "finish", "cancel"]


def test_a_fleet_of_another_machine_is_bad_input_and_a_lost_one_is_not() -> None:
    with pytest.raises(BadInput):
        move(FakeClient(errors={"submit": [ForeignHost("elsewhere")]}))
    with pytest.raises(FleetLost):
        move(FakeClient(errors={"submit": [FleetLost("gone")]}))


def test_verbose_logs_the_duration_of_each_stage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for end in ("in", "out"):
        (tmp_path / end).mkdir()
        (tmp_path / end / "a").write_bytes(b"the same")
    monkeypatch.setattr("skyplane_orchestration.cli.main.configure_logging", lambda _: None)
    caplog.set_level("INFO", "skyplane_orchestration")
    assert main(["sync", "--conflict", "skip", f"{tmp_path}/in", f"{tmp_path}/out", "-v"]) == 0
    stages = [record.getMessage().partition(" took ")[0] for record in caplog.records]
    assert stages == [
        "start of the command",
        "check of the destination",
        "comparison of both ends",
        "the command after its start",
    ]


def test_a_dry_run_of_a_move_says_that_sources_would_be_deleted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / name).write_bytes(b"1")
    command = ["cp", "-r", f"{tmp_path}/in", f"{tmp_path}/out", "--dry-run"]
    assert main([*command, "--move"]) == 0
    assert "the sources of copied objects would be deleted" in capsys.readouterr().out
    assert main([*command, "--move", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["move"] is True
    assert main(command) == 0
    assert "deleted" not in capsys.readouterr().out
    assert len(list((tmp_path / "in").iterdir())) == 2
