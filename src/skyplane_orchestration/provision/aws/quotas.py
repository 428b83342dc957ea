"""Quotas of vCPUs, and how much of them is in use."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.aws.describe import described
from skyplane_orchestration.provision.aws.errors import ON_DEMAND_QUOTA, SPOT_QUOTA
from skyplane_orchestration.provision.fleet.refusals import Refusal

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi

#: First letters of the instance families that share the two quotas.
_STANDARD: Final = frozenset("acdhimrtz")
#: Families with such a first letter and quotas of their own: `dl1.24xlarge`, `inf2.xlarge`.
_OTHERS: Final = ("dl", "hpc", "inf", "mac", "trn")
_WHAT: Final = {
    ON_DEMAND_QUOTA: "vCPUs of on-demand instances of standard families",
    SPOT_QUOTA: "vCPUs of spot instances of standard families",
}


def region_quotas(api: AwsApi, region: str, *, with_spot: bool) -> tuple[RegionQuota, ...]:
    """The quota of on-demand instances, and that of spot instances if they are used.

    Two calls, and one more for spot.
    """
    alive: list[FilterTypeDef] = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    used: Counter[str] = Counter()
    for entry in described(api, region, alive):
        if _is_standard(entry["InstanceType"]):
            used[_quota_of(entry)] += _vcpus(entry)
    of_relays = {ON_DEMAND_QUOTA: False, SPOT_QUOTA: True} if with_spot else {ON_DEMAND_QUOTA: None}
    return tuple(
        RegionQuota(
            region,
            quota,
            vcpus=_quota(api, region, quota),
            used_vcpus=used[quota],
            of_relays=who,
        )
        for quota, who in of_relays.items()
    )


def quota_uses(api: AwsApi, region: str) -> tuple[QuotaUse, ...]:
    """Both quotas. Addresses need none: those of instances are no elastic ones."""
    return tuple(
        QuotaUse(region, one.name, _WHAT[one.name], one.vcpus, one.used_vcpus)
        for one in region_quotas(api, region, with_spot=True)
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


def _vcpus(entry: InstanceTypeDef) -> int:
    """As the instance runs; AWS counts the vCPUs of its type, which differ only by options."""
    options = entry.get("CpuOptions", {})
    return options.get("CoreCount", 1) * options.get("ThreadsPerCore", 1)


def _quota_of(entry: InstanceTypeDef) -> str:
    return SPOT_QUOTA if entry.get("InstanceLifecycle") == "spot" else ON_DEMAND_QUOTA


def _is_standard(instance_type: str) -> bool:
    return instance_type[:1] in _STANDARD and not instance_type.startswith(_OTHERS)
