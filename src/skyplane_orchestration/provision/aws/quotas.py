"""Quotas of vCPUs, and how much of them is in use."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.aws.describe import described
from skyplane_orchestration.provision.aws.errors import ON_DEMAND_QUOTA, SPOT_QUOTA, Refusal

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi
    from skyplane_orchestration.provision.aws.types import Types

#: First letters of the instance families that share the two quotas.
_STANDARD: Final = frozenset("acdhimrtz")
#: Families with such a first letter and quotas of their own: `dl1.24xlarge`, `inf2.xlarge`.
_OTHERS: Final = ("dl", "hpc", "inf", "mac", "trn")


def region_quotas(
    api: AwsApi, types: Types, region: str, *, with_spot: bool
) -> tuple[RegionQuota, ...]:
    """The quota of on-demand instances, and that of spot instances if they are used.

    Two calls, one more for the types that run, and one for spot.
    """
    alive: list[FilterTypeDef] = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    running = [
        (
            SPOT_QUOTA if entry.get("InstanceLifecycle") == "spot" else ON_DEMAND_QUOTA,
            entry["InstanceType"],
        )
        for entry in described(api, region, alive)
        if _is_standard(entry["InstanceType"])
    ]
    types.learn(region, {kind for _, kind in running})
    used: Counter[str] = Counter()
    for quota, kind in running:
        used[quota] += types.of(region, kind).vcpus
    return tuple(
        RegionQuota(region, quota, vcpus=_quota(api, region, quota), used_vcpus=used[quota])
        for quota in ((ON_DEMAND_QUOTA, SPOT_QUOTA) if with_spot else (ON_DEMAND_QUOTA,))
    )


def _quota(api: AwsApi, region: str, code: str) -> int | None:
    """vCPUs; None if the region has no such quota."""
    client = api.service_quotas(region)
    try:
        answer = api.call(
            f"reading the quota {code} of {region}",
            region,
            lambda: client.get_service_quota(ServiceCode="ec2", QuotaCode=code),
            expected={"NoSuchResourceException"},
        )
    except Refusal:
        return None
    return int(answer["Quota"]["Value"])


def _quota_of(entry: InstanceTypeDef) -> str:
    return SPOT_QUOTA if entry.get("InstanceLifecycle") == "spot" else ON_DEMAND_QUOTA


def _is_standard(instance_type: str) -> bool:
    return instance_type[:1] in _STANDARD and not instance_type.startswith(_OTHERS)
