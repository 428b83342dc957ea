"""`doctor --cloud`: one cloud of the strict fakes, and the quotas of its regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import RunJson
from tests.clouds.arm import SUBSCRIPTION, strict_arm
from tests.clouds.ec2 import strict_ec2
from tests.clouds.gce import PROJECT, strict_gce
from tests.clouds.world import IMAGE

from skyplane_orchestration.cli.main import main


@dataclass(frozen=True)
class Account:
    """A cloud, with limits that differ from those of other quotas.

    Args:
        cloud: `aws`, ...
        section: its settings in a clouds file.
        region, other: tags of two of its regions.
        limits: name of a quota of `region` -> its limit.
        action: one that a launch needs.
        conditions: of the fake.
    """

    cloud: str
    section: dict[str, Any]
    region: str
    other: str
    limits: dict[str, int]
    action: str
    conditions: Any

    def clouds_file(self, directory: Path, **more: Any) -> str:
        path = directory / "clouds.yaml"
        settings = {
            "image": IMAGE.image,
            "control_cidrs": ["203.0.113.7/32"],
            self.cloud: {**self.section, **more},
        }
        path.write_text(yaml.safe_dump(settings))
        return str(path)


@contextmanager
def aws() -> Iterator[Account]:
    with strict_ec2() as ec2:
        limits = {"L-1216C47A": 5, "L-34B43A08": 7}
        ec2.conditions.quotas |= {("eu-west-3", name): limit for name, limit in limits.items()}
        yield Account(
            "aws",
            {"endpoint_url": ec2.url},
            "aws:eu-west-3",
            "aws:us-east-1",
            limits,
            "ec2:RunInstances",
            ec2.conditions,
        )


@contextmanager
def gcp() -> Iterator[Account]:
    with strict_gce() as gce:
        limits = {"N2_CPUS": 24, "PREEMPTIBLE_CPUS": 0, "IN_USE_ADDRESSES": 8}
        gce.conditions.quotas |= {("us-central1", name): limit for name, limit in limits.items()}
        yield Account(
            "gcp",
            {"endpoint_url": gce.url, "project": PROJECT},
            "gcp:us-central1",
            "gcp:europe-west1",
            limits,
            "compute.instances.create",
            gce.conditions,
        )


@contextmanager
def azure() -> Iterator[Account]:
    with strict_arm() as arm:
        limits = {
            "cores": 10,
            "lowPriorityCores": 3,
            "standardDSv5Family": 8,
            "StandardSkuPublicIpAddresses": 6,
        }
        arm.conditions.quotas |= {("westeurope", name): limit for name, limit in limits.items()}
        yield Account(
            "azure",
            {"endpoint_url": arm.url, "subscription_id": SUBSCRIPTION},
            "azure:westeurope",
            "azure:eastus",
            limits,
            "Microsoft.Compute/virtualMachines/write",
            arm.conditions,
        )


@pytest.fixture(params=[aws, gcp, azure], ids=["aws", "gcp", "azure"])
def account(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    opened: Callable[[], Any] = request.param
    with opened() as made:
        yield made


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
    account.conditions.denied.add(account.action)
    file = account.clouds_file(tmp_path, regions=[account.region])
    document = run_json("doctor", "--cloud", account.cloud, "--clouds", file, code=1)
    (bad,) = [check for check in document["checks"] if check["state"] == "fail"]
    assert bad["name"] == f"{account.cloud} permissions"
    assert account.action in bad["detail"]


def test_without_a_file_the_credentials_are_those_of_the_process(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    with aws() as account:
        monkeypatch.setenv("AWS_ENDPOINT_URL", account.section["endpoint_url"])
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
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
    with gcp() as account:
        file = account.clouds_file(tmp_path)
        assert main(["doctor", "--cloud", "aws", "--clouds", file]) == 2
    assert "has no section aws; it has gcp" in capsys.readouterr().err


def test_a_region_without_an_answer_does_not_hide_the_others(
    run_json: RunJson, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    with aws() as account:
        account.conditions.denied_regions.add("us-east-1")
        file = account.clouds_file(tmp_path, regions=[account.region, account.other])
        document = run_json("doctor", "--cloud", "aws", "--clouds", file, code=1)
    states = {check["name"]: check["state"] for check in document["checks"]}
    assert states[f"{account.other} quotas"] == "fail"
    assert states[f"{account.region} L-1216C47A"] == "ok"
