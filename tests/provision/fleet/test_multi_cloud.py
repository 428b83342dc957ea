"""Several clouds as one."""

from __future__ import annotations

import pytest
from tests.provision.fleet.memory_cloud import MemoryAccount, MemoryCloud
from tests.provision.samples import A, B

from skyplane_gateway.common.dialing import Dial, dial
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds


def test_a_region_that_no_cloud_offers_may_have_no_instance() -> None:
    """Neither one of a cloud without settings, nor one that the account may not use."""
    account = MemoryAccount()
    clouds = Clouds([MemoryCloud("aws", account), MemoryCloud("azure", account)])
    found = {quota.region: quota for quota in clouds.quotas((A, B, "aws:af-south-1"))}
    assert {region: quota.instances for region, quota in found.items()} == {
        A: None,
        B: 0,
        "aws:af-south-1": 0,
    }
    assert found[A].vcpus == 64
    assert found[B].name == "the clouds that have settings (aws, azure)"
    assert found["aws:af-south-1"].name == "the account and the setting regions of aws, azure"


def test_a_cloud_that_cannot_be_asked_is_a_finding() -> None:
    closed = MemoryAccount(is_closed=True)
    clouds = Clouds([MemoryCloud("aws", closed), MemoryCloud("gcp", MemoryAccount())])
    assert [(found.name, found.is_ok, found.text) for found in clouds.check()] == [
        ("cloud aws", False, "the account is closed"),
        ("gcp account", True, "it is in memory"),
    ]


def test_a_cloud_may_have_regions_of_others_and_a_way_to_its_instances() -> None:
    class Cluster(MemoryCloud):
        named_regions = frozenset({"aws:eu-west-3"})

        def dial_to(self, fleet_key: str, instance: str) -> Dial:
            return lambda host, port, _: pytest.fail(f"{fleet_key} {instance} {host} {port}")

    account = MemoryAccount()
    aws, cluster = MemoryCloud("aws", account), Cluster("kubernetes", account)
    clouds = Clouds([aws, cluster])
    assert clouds.of("aws:us-east-1") is aws
    assert clouds.of("aws:eu-west-3") is cluster
    assert clouds.dial_to("f1", "aws:us-east-1/0.1") is dial
    with pytest.raises(pytest.fail.Exception, match=r"f1 aws:eu-west-3/0 10.0.0.7 7601"):
        clouds.dial_to("f1", "aws:eu-west-3/0.1")("10.0.0.7", 7601, 5.0)
