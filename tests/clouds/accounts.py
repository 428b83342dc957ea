"""Accounts of the strict fakes, with what tests of settings and checks need of each cloud."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.clouds.fakes import open_arm, open_ec2, open_gce
from tests.clouds.gateways import IMAGE

from skyplane_orchestration.provision.aws import AwsCloud, AwsOptions
from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from skyplane_orchestration.provision.fleet.machines import (
    FleetTags,
    Ingress,
    LaunchRequest,
    Machines,
)
from skyplane_orchestration.provision.fleet.options import options_from
from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions
from strict_clouds.arm import SUBSCRIPTION
from strict_clouds.gce import PROJECT

_DAY_S: Final = 86_400


@dataclass(frozen=True)
class Account:
    """A cloud, with limits that differ from those of other quotas.

    Args:
        cloud: `aws`, ...
        section: its settings in a clouds file.
        region, other: tags of two of its regions.
        limits: name of a quota of `region` -> its limit.
        action: one that a launch needs.
        fake: of the cloud.
        instance_type: one that it has.
        open: makes the cloud from a section.
    """

    cloud: str
    section: dict[str, Any]
    region: str
    other: str
    limits: dict[str, int]
    action: str
    fake: Any
    instance_type: str
    open: Callable[[Mapping[str, Any]], Machines]

    def settings(self, **more: Any) -> dict[str, Any]:
        """The content of a clouds file; `more` is of the cloud's section."""
        return {
            "image": IMAGE.image,
            "control_cidrs": ["203.0.113.7/32"],
            "poll_s": 0.1,
            self.cloud: {**self.section, "regions": [self.region, self.other], **more},
        }

    def settings_with(self, reference: str) -> dict[str, Any]:
        """As `settings`, with the credentials of a reference."""
        more = {"credential_ref": reference}
        if self.cloud == "azure":
            # Its SDK asks for tokens by TLS only, and for a token before it connects.
            more["endpoint_url"] = self.section["endpoint_url"].replace("http:", "https:")
        return self.settings(**more)

    def clouds_file(self, directory: Path, **more: Any) -> str:
        path = directory / "clouds.json"
        path.write_text(json.dumps(self.settings(**more)))
        return str(path)

    def leave_a_fleet(self, deployment: str) -> str:
        """What a lost worker leaves: firewall and instance of yesterday. The fleet's key."""
        now_s = int(time.time())
        tags = FleetTags("ab" * 16, deployment, 0, now_s - 2 * _DAY_S, now_s - _DAY_S)
        cloud = self.open(self.section)
        cloud.create_firewalls(tags, [self.region])
        cloud.admit(tags, self.region, [Ingress(7600, 7601, "203.0.113.7/32")])
        cloud.launch(
            LaunchRequest(
                tags=tags,
                instance=f"{self.region}/0",
                region=self.region,
                instance_type=self.instance_type,
                launch_id="0" * 32,
                launch_number=0,
                user_data="#!/bin/sh\nexit 0\n",
                is_end=False,
            )
        )
        return tags.fleet_key


@contextmanager
def _aws() -> Iterator[Account]:
    with open_ec2(deployments=("local", "prod", "staging")) as ec2:
        limits = {"L-1216C47A": 5, "L-34B43A08": 7}
        ec2.conditions.quotas |= {("eu-west-3", name): limit for name, limit in limits.items()}
        yield Account(
            "aws",
            {"endpoint_url": ec2.url},
            "aws:eu-west-3",
            "aws:us-east-1",
            limits,
            "ec2:RunInstances",
            ec2,
            "c7gn.large",
            lambda section: AwsCloud(options_from(AwsOptions, "aws", section)),
        )


@contextmanager
def _gcp() -> Iterator[Account]:
    with open_gce() as gce:
        gce.conditions.now_s = time.time()
        limits = {"N2_CPUS": 24, "PREEMPTIBLE_CPUS": 0, "IN_USE_ADDRESSES": 8}
        gce.conditions.quotas |= {("us-central1", name): limit for name, limit in limits.items()}
        yield Account(
            "gcp",
            {"endpoint_url": gce.url, "project": PROJECT},
            "gcp:us-central1",
            "gcp:europe-west1",
            limits,
            "compute.instances.create",
            gce,
            "n2-standard-4",
            lambda section: GcpCloud(options_from(GcpOptions, "gcp", section)),
        )


@contextmanager
def _azure() -> Iterator[Account]:
    with open_arm() as arm:
        arm.conditions.operation_polls = 0
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
            arm,
            "Standard_D4s_v5",
            lambda section: AzureCloud(options_from(AzureOptions, "azure", section)),
        )


ACCOUNTS: Final[Mapping[str, Callable[[], AbstractContextManager[Account]]]] = {
    "aws": _aws,
    "gcp": _gcp,
    "azure": _azure,
}


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has keys of AWS."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")


@pytest.fixture(params=ACCOUNTS)
def account(request: pytest.FixtureRequest, aws_keys: None) -> Iterator[Account]:
    with ACCOUNTS[request.param]() as made:
        yield made
