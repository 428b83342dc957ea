"""`doctor --cloud`: one cloud of the strict fakes, and the quotas of its regions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import RunJson
from tests.clouds.accounts import ACCOUNTS, Account

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.provision.aws import AwsCloud
from skyplane_orchestration.provision.fleet.machines import PublicHosts


@pytest.fixture(autouse=True)
def deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that the policies of the fakes name."""
    monkeypatch.setenv("SKYPLANE_DEPLOYMENT", "prod")


def test_the_quotas_of_a_region_are_told(
    account: Account, run_json: RunJson, tmp_path: Path
) -> None:
    file = account.clouds_file(tmp_path, regions=[account.region])
    document = run_json("doctor", "--cloud", account.cloud, "--clouds", file)
    quotas = {one["name"]: one for one in document["quotas"] if one["region"] == account.region}
    for name, limit in account.limits.items():
        assert (quotas[name]["limit"], quotas[name]["used"]) == (limit, 0)
        assert quotas[name]["free"] == limit
    checks = {check["name"]: check for check in document["checks"]}
    for name, limit in account.limits.items():
        found = checks[f"{account.region} {name}"]
        assert found["state"] == ("ok" if limit else "warn")
        assert f"limit {limit}, 0 used, {limit} free" in found["detail"]
    assert checks[f"{account.cloud} credentials"]["state"] == "ok"
    assert not any(account.other in name for name in checks)
    assert "solver" not in checks


def test_named_regions_take_the_place_of_those_of_the_file(
    account: Account, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = account.clouds_file(tmp_path, regions=[account.region])
    command = ["doctor", "--cloud", account.cloud, "--clouds", file]
    assert main([*command, "--region", account.other]) == 0
    table = capsys.readouterr().out
    assert account.other in table
    assert account.region not in table


def test_a_missing_permission_fails(account: Account, run_json: RunJson, tmp_path: Path) -> None:
    account.fake.conditions.denied.add(account.action)
    file = account.clouds_file(tmp_path, regions=[account.region])
    document = run_json("doctor", "--cloud", account.cloud, "--clouds", file, code=1)
    (bad,) = [check for check in document["checks"] if check["state"] == "fail"]
    assert bad["name"] == f"{account.cloud} permissions"
    assert account.action in bad["detail"]


@pytest.mark.usefixtures("aws_keys")
def test_ranges_of_the_whole_internet_are_a_warning(run_json: RunJson, tmp_path: Path) -> None:
    with ACCOUNTS["aws"]() as account:
        settings = {**account.settings(), "control_cidrs": ["0.0.0.0/0", "::/0"]}
        file = tmp_path / "clouds.json"
        file.write_text(json.dumps(settings))
        document = run_json("doctor", "--cloud", "aws", "--clouds", str(file))
    told = [check for check in document["checks"] if check["name"] == "control_cidrs"]
    assert [check["state"] for check in told] == ["warn", "warn"]
    assert "0.0.0.0/0: most of the internet" in told[0]["detail"]
    assert "::/0, which opens nothing" in told[1]["detail"]


@pytest.mark.usefixtures("aws_keys")
def test_a_worker_behind_a_proxy_is_warned_and_nothing_is_hidden(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The proxy lets the API's calls through; here they go to loopback without it."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    hosts = PublicHosts("127.77.0.1", "127.77.0.1")
    monkeypatch.setattr(AwsCloud, "public_hosts", hosts)
    with ACCOUNTS["aws"]() as account:
        file = account.clouds_file(tmp_path, regions=[account.region])
        document = run_json("doctor", "--cloud", "aws", "--clouds", file)
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert states["aws worker"] == "warn"
    assert states["aws permissions"] == "ok"


@pytest.mark.usefixtures("aws_keys")
def test_without_a_file_the_credentials_are_those_of_the_process(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ACCOUNTS["aws"]() as account:
        monkeypatch.setenv("AWS_ENDPOINT_URL", account.section["endpoint_url"])
        document = run_json("doctor", "--cloud", "aws", "--region", account.region)
    assert {one["name"]: one["limit"] for one in document["quotas"]} == account.limits


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--cloud", "gcp"), "gcp needs a project: set GOOGLE_CLOUD_PROJECT"),
        (("--cloud", "azure"), "azure needs a subscription_id: set AZURE_SUBSCRIPTION_ID"),
        (("--cloud", "aws", "--region", "gcp:us-east1"), "gcp:us-east1 is not a region of aws"),
        (("--region", "aws:us-east-1"), "--region needs --cloud"),
        (("--cloud", "oracle"), "--cloud"),
        (("--cloud", "kubernetes"), "kubernetes needs --clouds FILE"),
    ],
)
def test_what_is_missing_is_bad_input(
    arguments: tuple[str, ...],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.delenv("AZURE_SUBSCRIPTION_ID", raising=False)
    assert main(["doctor", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_a_file_without_the_cloud_is_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with ACCOUNTS["gcp"]() as account:
        file = account.clouds_file(tmp_path)
        assert main(["doctor", "--cloud", "aws", "--clouds", file]) == 2
    assert "has no section aws; it has gcp" in capsys.readouterr().err


@pytest.mark.usefixtures("aws_keys")
def test_a_region_without_an_answer_does_not_hide_the_others(
    run_json: RunJson, tmp_path: Path
) -> None:
    with ACCOUNTS["aws"]() as account:
        account.fake.conditions.denied_regions.add("us-east-1")
        file = account.clouds_file(tmp_path, regions=[account.region, account.other])
        document = run_json("doctor", "--cloud", "aws", "--clouds", file, code=1)
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert states[f"{account.other} quotas"] == "fail"
    assert states[f"{account.region} L-1216C47A"] == "ok"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"aws": {"registry_identity": "puller"}}, "registry_identity of aws is for an image in"),
        ({"image": "", "bundle": "/none.zip"}, "the bundle /none.zip cannot be read"),
    ],
)
def test_software_that_instances_could_not_get_is_bad_input(
    changes: dict[str, object],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    with ACCOUNTS["aws"]() as account:
        file = tmp_path / "clouds.json"
        file.write_text(json.dumps(account.settings() | changes))
        assert main(["doctor", "--cloud", "aws", "--clouds", str(file)]) == 2
        assert account.fake.calls == []
    assert expected in capsys.readouterr().err


@pytest.mark.usefixtures("aws_keys")
def test_the_check_of_a_provisioner_tells_of_the_bundle(run_json: RunJson, tmp_path: Path) -> None:
    with ACCOUNTS["aws"]() as account:
        file = tmp_path / "clouds.json"
        file.write_text(json.dumps(account.settings() | {"image": "", "bundle": "/none.zip"}))
        document = run_json("doctor", "--provisioner", "aws", "--clouds", str(file), code=1)
    (bad,) = [check for check in document["checks"] if check["state"] == "fail"]
    assert bad["name"] == "bundle"
    assert "the bundle /none.zip cannot be read" in bad["detail"]
