"""Billing of instances: provisioning time, billing by the second, minimum charges.

The gateways of a plan start together, and the transfer begins when all are up. So every instance is
billed while it waits for the slowest cloud of the plan: `provision_s`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from skyplane_orchestration.units import SECONDS_PER_MINUTE


@dataclass(frozen=True, slots=True)
class Billing:
    """What one cloud bills in addition to the seconds of transfer.

    Attributes:
        provision_s: estimated seconds from the first API call until a gateway responds: boot, then
            download and start of the gateway.
        minimum_s: minimum billed seconds of a running instance.
        source, as_of: where the minimum is stated, and the date of that source.
    """

    provision_s: float
    minimum_s: float
    source: str
    as_of: str


#: Clouds bill by the second. Azure drops the rest of a minute, which is not counted. Boot: EC2
#: about 30 s, GCE 20 to 40 s, Azure 40 to 90 s. EC2 does not bill the few seconds of `pending`,
#: which are counted here.
BILLING: Final[Mapping[str, Billing]] = MappingProxyType(
    {
        "aws": Billing(
            75.0,
            SECONDS_PER_MINUTE,
            "https://repost.aws/knowledge-center/ec2-instance-hour-billing",
            "2017-10-02, in force in 2026-11",
        ),
        "gcp": Billing(
            75.0,
            SECONDS_PER_MINUTE,
            "https://cloud.google.com/compute/vm-instance-pricing (one minute, then by second)",
            "2026-11-20, general knowledge",
        ),
        # Announced for 2025-06-01; before that it was one minute. The larger value can only
        # overestimate a short job by some cents.
        "azure": Billing(
            120.0,
            5 * SECONDS_PER_MINUTE,
            "https://learn.microsoft.com/en-us/answers/questions/2259765",
            "2025-04-21",
        ),
        "local": Billing(2.0, 0.0, "this machine sends no bill", "2026-11-20"),
    }
)


def cloud_of(tag: str) -> str:
    return tag.partition(":")[0]


def provision_s(regions: Iterable[str], known: Mapping[str, float]) -> float:
    """Seconds until the gateways in all these regions respond: those of the slowest cloud.

    Args:
        known: cloud -> seconds, in place of the estimate in `BILLING`.
    """
    clouds = {cloud_of(tag) for tag in regions}
    return max(known.get(cloud, BILLING[cloud].provision_s) for cloud in clouds)


def billed_s(tag: str, transfer_s: float, wait_s: float) -> float:
    """Billed seconds of one instance, `wait_s` until the slowest gateway of the plan included."""
    return max(wait_s + transfer_s, BILLING[cloud_of(tag)].minimum_s)
