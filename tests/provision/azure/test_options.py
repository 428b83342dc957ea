"""Options of Azure that are refused, and what they say."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.azure import AzureOptions
from skyplane_orchestration.provision.azure.options import region_tag
from skyplane_orchestration.provision.fleet.options import options_from
from strict_clouds.arm import SUBSCRIPTION


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"subscription_id": "mine"}, "subscription_id of azure has 'mine'"),
        ({"regions": ["westeurope"]}, "regions are written as azure:westeurope"),
        ({"regions": []}, "regions of azure is empty"),
        ({"zones": {"azure:eastus": ["a"]}}, "zones of azure for azure:eastus"),
        ({"zones": {"azure:eastus": []}}, "zones of azure for azure:eastus"),
        ({"images": {"riscv": "a:b:c:d"}}, "images of azure has no use for riscv"),
        ({"images": {"arm64": "debian"}}, "images of azure for arm64 has 'debian'"),
        ({"images": {"arm64": "/subscriptions/x"}}, "images of azure for arm64"),
        ({"subnets": {"azure:eastus": "default"}}, "subnets of azure for azure:eastus"),
        ({"managed_identity": "gateways"}, "managed_identity of azure has 'gateways'"),
        ({"self_delete_role": "Owner"}, "self_delete_role of azure has 'Owner'"),
        ({"disk_encryption_set": "mine"}, "disk_encryption_set of azure has 'mine'"),
        ({"disk_gib": 8}, "disk_gib of azure must be from 30 to 4095, not 8"),
        ({"user_tags": {"a/b": "c"}}, "user_tags of azure cannot have 'a/b'"),
        ({"subscription": "typo"}, "the setting azure"),
    ],
)
def test_what_cannot_be_used_is_named(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        options_from(AzureOptions, "azure", {"subscription_id": SUBSCRIPTION, **settings})


def test_an_image_is_a_name_or_an_id() -> None:
    own = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/a/images/b"
    options = AzureOptions(SUBSCRIPTION, images={"arm64": own, "x86_64": "a:b:c:latest"})
    assert options.image_reference("arm64", "T") == {"id": own}
    assert options.image_reference("x86_64", "T") == {
        "publisher": "a",
        "offer": "b",
        "sku": "c",
        "version": "latest",
    }


def test_an_architecture_without_image_is_refused() -> None:
    options = AzureOptions(SUBSCRIPTION, images={"arm64": "a:b:c:latest"})
    with pytest.raises(ConfigurationInvalid, match="no image for x86_64, which T needs"):
        options.image_reference("x86_64", "T")


def test_azure_writes_regions_in_two_ways() -> None:
    assert region_tag("West Europe") == region_tag("westeurope") == "azure:westeurope"
