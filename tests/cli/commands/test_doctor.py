"""`doctor`: the checks of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from tests.ports import free_port

from skyplane_gateway.stores import Credentials, Reach
from skyplane_gateway.stores.azure import credentials as azure_credentials
from skyplane_orchestration.cli import own_speed
from skyplane_orchestration.cli.main import main
from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.local import LocalProvisioner
from skyplane_orchestration.transfer import gateway_credentials

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson


@pytest.fixture(autouse=True)
def _no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No service of a cloud is asked which identity this machine has."""
    names = ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST")
    for name in [*names, *(name for name in os.environ if name.startswith("AZURE_"))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setattr(azure_credentials, "_chain_token", _refuse_token)


def _refuse_token() -> None:
    raise ClientAuthenticationError("there is no identity")


def credentials(run_json: RunJson, store: str) -> tuple[str, str]:
    """State and detail of the check of a store's credentials."""
    checks = {check["name"]: check for check in run_json("doctor")["checks"]}
    found = checks[f"{store} credentials"]
    return found["state"], found["detail"]


def test_all_checks_pass_on_this_machine(
    run_json: RunJson, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not to be shown")
    checks = {check["name"]: check for check in run_json("doctor")["checks"]}
    names = ("python", "gateway", "fleet secret", "run root", "open files", "grid", "solver")
    for name in (*names, "loopback"):
        assert checks[name]["state"] == "ok", checks[name]
    assert checks["S3 credentials"]["detail"] == "found long-lived credentials"
    assert "AKID" not in str(checks)
    assert not list((private_home / "run").iterdir())
    assert not list((private_home / "config").iterdir())


@pytest.mark.parametrize("store", ["Google", "Azure"])
def test_missing_credentials_of_a_cloud_are_a_warning(run_json: RunJson, store: str) -> None:
    expected = "none found; give credentials for each location"
    assert credentials(run_json, store) == ("warn", expected)


def test_an_emulator_of_google_needs_no_credentials(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    state, detail = credentials(run_json, "Google")
    assert state == "ok"
    assert "STORAGE_EMULATOR_HOST" in detail


def test_a_broken_key_file_of_google_fails(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key.json").write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    checks = {check["name"]: check for check in run_json("doctor", code=1)["checks"]}
    assert checks["Google credentials"]["state"] == "fail"


@pytest.mark.parametrize(
    ("variables", "detail"),
    [
        ({"STORAGE_KEY": "a2V5"}, "found a key of every account"),
        ({"STORAGE_KEY": "a2V5", "STORAGE_ACCOUNT": "mine"}, "found a key of the account mine"),
        (
            {"STORAGE_SAS_TOKEN": "sv=1&sig=hush", "STORAGE_ACCOUNT": "mine"},
            "found a SAS token of the account mine",
        ),
        (
            {"STORAGE_CONNECTION_STRING": "AccountName=other;AccountKey=aHVzaA=="},
            "found a key of the account other",
        ),
    ],
)
def test_credentials_of_azure_are_named_and_not_shown(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], detail: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"AZURE_{name}", value)
    assert credentials(run_json, "Azure") == ("ok", detail)


def test_an_identity_of_azure(run_json: RunJson, monkeypatch: pytest.MonkeyPatch) -> None:
    token = AccessToken("hush", 4_000_000_000)
    monkeypatch.setattr(azure_credentials, "_chain_token", lambda: token)
    assert credentials(run_json, "Azure") == ("ok", "found an identity that gets access tokens")


def test_a_secret_that_others_can_read_fails(
    run_json: RunJson, private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = private_home / "config" / "skyplane-orch" / "secret"
    secret.parent.mkdir()
    secret.write_text("0" * 64)
    secret.chmod(0o644)
    checks = {check["name"]: check for check in run_json("doctor", code=1)["checks"]}
    assert checks["fleet secret"]["state"] == "fail"
    assert "chmod 600" in checks["fleet secret"]["detail"]
    assert main(["doctor", "--grid", "/nowhere"]) == 1
    assert "0" * 64 not in capsys.readouterr().out


def test_a_provisioner_that_cannot_be_checked_hides_nothing(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(client: Client) -> None:
        raise ConfigurationInvalid("the settings are odd")

    monkeypatch.setattr(Client, "check_provisioner", broken)
    checks = {check["name"]: check for check in run_json("doctor", code=1)["checks"]}
    assert checks["provisioner"]["detail"] == "the settings are odd"
    assert checks["solver"]["state"] == "ok"


def test_hosts_that_do_not_answer_fail(
    run_json: RunJson, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    port = free_port()
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(f"aws:us-east-1: [{{address: 127.0.0.1, port: {port}, user: me}}]\n")
    choice = ("--provisioner", "ssh", "--hosts", str(hosts))
    checks = {check["name"]: check for check in run_json("doctor", *choice, code=1)["checks"]}
    assert "run root" not in checks
    found = checks[f"host me@127.0.0.1:{port}"]
    assert found["state"] == "fail"
    assert "cannot be reached over ssh: Unable to connect" in found["detail"]
    assert main(["doctor", *choice]) == 1
    assert "cannot be reached" in capsys.readouterr().out
    assert main(["doctor", "--provisioner", "ssh"]) == 2
    assert "--hosts" in capsys.readouterr().err


def test_a_long_finding_hides_no_state_and_no_word(
    run_json: RunJson,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(f"aws:us-east-1: [{{address: 127.0.0.1, port: {free_port()}}}]\n")
    choice = ("--provisioner", "ssh", "--hosts", str(hosts))
    checks = run_json("doctor", *choice, code=1)["checks"]
    monkeypatch.setattr("skyplane_orchestration.cli.console._PIPE_WIDTH", 80)
    assert main(["doctor", *choice]) == 1
    shown = "".join(capsys.readouterr().out.split())
    for check in (one for one in checks if one["name"] != "solver"):  # It tells a time.
        assert "".join((check["state"] + check["name"] + check["detail"]).split()) in shown


def test_places_for_which_there_are_no_credentials_are_a_warning(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalProvisioner, "name", "elsewhere")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    regions = ("--src-region", "aws:us-east-1", "--dst-region", "aws:eu-west-1")
    checks = {
        check["name"]: check for check in run_json("doctor", "s3://a/p", "/q", *regions)["checks"]
    }
    assert checks["credentials of the source"]["state"] == "warn"
    assert checks["credentials of the source"]["detail"].startswith("none are found, so gateways")
    assert checks["credentials of the sink"]["state"] == "ok"


def test_both_ends_or_none(run_json: RunJson, capsys: pytest.CaptureFixture[str]) -> None:
    checks = {check["name"]: check for check in run_json("doctor", "/a/", "/b/")["checks"]}
    for side in ("source", "sink"):
        assert checks[f"credentials of the {side}"]["state"] == "ok"
    assert main(["doctor", "s3://a/"]) == 2
    assert "give both SRC and DST" in capsys.readouterr().err
    assert main(["doctor", "--cloud", "aws", "s3://a/", "s3://b/"]) == 2
    assert "--cloud takes no SRC and DST" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "folders"), [((), ()), (("-r",), ("p/",))])
def test_the_places_are_those_of_a_copy_with_the_same_flag(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch, flag: tuple[str, ...], folders: Any
) -> None:
    asked: list[Reach] = []

    def limited(found: Any, reaches: Sequence[Reach]) -> Credentials:
        asked.extend(reaches)
        return Credentials({"access_key_id": "limited"})

    monkeypatch.setattr(gateway_credentials, "limited_credentials", limited)
    monkeypatch.setattr(LocalProvisioner, "name", "elsewhere")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")
    regions = ("--src-region", "aws:us-east-1", "--dst-region", "aws:eu-west-1")
    ends = ("s3://a/p", "s3://b/q", *regions)
    checks = {check["name"]: check for check in run_json("doctor", *flag, *ends)["checks"]}
    assert (asked[0].folders, asked[0].keys) == (folders, () if folders else ("p",))
    place = "s3://a/p/" if folders else "s3://a/p"
    expected = f"gateways get some that reach {place} only"
    assert checks["credentials of the source"]["detail"] == expected


def test_the_speed_of_this_machine_is_measured_beside_that_of_the_grid(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By gateways that copy files here, as little as will do."""
    monkeypatch.setattr(own_speed, "_FILE_BYTES", 1 << 20)
    monkeypatch.setattr(own_speed, "_COPIES", 2)
    found = run_json("doctor", "--speed")
    assert set(found["gbps_per_vcpu"]) == {"source", "relay", "sink"}
    assert min(found["gbps_per_vcpu"].values()) > 0
    [check] = [check for check in found["checks"] if check["name"] == "speed"]
    assert check["state"] == "ok"
    assert check["detail"].startswith("Gbit/s per vCPU with files, sealed: source ")
    assert "the grid has source " in check["detail"]
