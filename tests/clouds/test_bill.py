"""What the bill of the fakes depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from strict_clouds.bill import bill_of
from strict_clouds.usage import Usage
from strict_clouds.world import World

BELGIUM, SYDNEY, VIRGINIA = "gcp:europe-west1", "aws:ap-southeast-2", "aws:us-east-1"


@dataclass(frozen=True)
class Sender:
    """A machine that has sent a GiB to each of its peers."""

    address: str
    peers: tuple[str, ...] = ()

    def sent_bytes(self) -> dict[str, int]:
        return dict.fromkeys(self.peers, 2**30)


@dataclass(frozen=True)
class Senders:
    machines: tuple[Sender, ...]


@pytest.mark.parametrize(("tier", "usd"), [("PREMIUM", 0.12 + 0.19), ("STANDARD", 2 * 0.085)])
def test_the_network_tier_of_the_sender_decides_the_price_of_its_bytes(
    tier: str, usd: float
) -> None:
    usage = Usage()
    common: dict[str, Any] = {"disk_gib": 10, "has_address": True}
    usage.begin("1", BELGIUM, "n2-standard-4", address="1", network_tier=tier, **common)
    usage.begin("2", SYDNEY, "c7gn.large", address="2", **common)
    usage.begin("3", VIRGINIA, "c7gn.large", address="3", **common)
    world = Senders((Sender("1", ("2", "3")), Sender("2"), Sender("3")))
    assert bill_of([usage], cast(World, world)).egress_usd == pytest.approx(usd)
