"""What a bill has beside egress, instances and requests.

Some of it depends on the plan: packet headers on the bytes that leave a region; a public address
and a disk for each hour of an instance. The rest depends on the objects alone: retrieval from a
storage class, and requests to a key service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner.pricing.instance_billing import billed_s, cloud_of
from skyplane_orchestration.units import gb_to_gib, usd_per_hour_to_usd_per_s

HEADERS: Final = "packet headers"
RETRIEVAL: Final = "retrieval"
KEYS: Final = "key requests"
#: Names of `bytes_and_instances` in price_rules.yaml -> names of items.
_BY_HOUR: Final = {"public_ipv4": "public IPv4 addresses", "disk": "disks"}
_REQUESTS_PER_PRICE: Final = 1000


@dataclass(frozen=True, slots=True)
class OtherItems:
    """The further items of a job.

    Attributes:
        fixed_usd: item -> USD, whatever the plan.
        packet_headers: share that headers add to the bytes that leave a region.
        usd_per_hour: item -> cloud -> USD per hour of one instance.
    """

    fixed_usd: Mapping[str, float] = field(default_factory=dict)
    packet_headers: float = 0.0
    usd_per_hour: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def beside(self, cloud: str) -> float:
        """USD per hour that come with an instance of a cloud."""
        return sum(usd.get(cloud, 0.0) for usd in self.usd_per_hour.values())

    def amounts(
        self, egress_usd: float, instances: Mapping[str, int], transfer_s: float, wait_s: float
    ) -> dict[str, float]:
        """Item -> USD for a plan; items that cost nothing are left out.

        Args:
            instances: region tag -> instances.
        """
        found = {HEADERS: egress_usd * self.packet_headers}
        for item, prices in self.usd_per_hour.items():
            found[item] = sum(
                count
                * usd_per_hour_to_usd_per_s(prices.get(cloud_of(tag), 0.0))
                * billed_s(tag, transfer_s, wait_s)
                for tag, count in instances.items()
            )
        return {item: usd for item, usd in {**found, **self.fixed_usd}.items() if usd}


def other_items(
    grid: Grid, src: str, destinations: Sequence[str], objects: int | None, volume_gb: float | None
) -> OtherItems:
    """The further items of a job between region tags.

    Raises ConfigurationInvalid for a storage class that the source's cloud does not have.
    """
    fixed: dict[str, float] = {}
    priced = priced_classes(grid, src).values()
    retrieval = sum(prices.get("retrieval", 0.0) * share for prices, share in priced)
    if retrieval and volume_gb:
        fixed[RETRIEVAL] = retrieval * gb_to_gib(volume_gb)
    asked = [
        *([src] if grid.key_requests in ("source", "both") else ()),
        *(destinations if grid.key_requests in ("destination", "both") else ()),
    ]
    services = grid.price_document.get("key_requests") or {}
    keys = sum(float(services.get(cloud_of(tag), {}).get("usd", 0.0)) for tag in asked)
    if objects and keys:
        fixed[KEYS] = objects * keys / _REQUESTS_PER_PRICE
    facts = grid.beside_bytes_and_instances
    # Processes of this machine have neither addresses nor disks of a cloud.
    rented = {kind.cloud for kind in grid.types if kind.usd_per_hour}
    return OtherItems(
        fixed_usd=fixed,
        packet_headers=float(facts.get("packet_headers", 0.0)),
        usd_per_hour={
            item: {
                cloud: usd for cloud, usd in facts[name]["usd_per_hour"].items() if cloud in rented
            }
            for name, item in _BY_HOUR.items()
            if name in facts
        },
    )


def read_usd(grid: Grid, src: str) -> float:
    """USD per 1000 reads of the source's objects; raises as `priced_classes`."""
    usual = grid.request_prices(cloud_of(src)).get("read", 0.0)
    priced = priced_classes(grid, src).values()
    more = sum((prices.get("read", usual) - usual) * share for prices, share in priced)
    return usual + more


def priced_classes(grid: Grid, src: str) -> Mapping[str, tuple[Mapping[str, float], float]]:
    """Storage class -> its prices and its share, for classes of the source that cost retrieval.

    They are those of the listing, unless the policy names one.

    Raises ConfigurationInvalid for a named class that the source's cloud does not have.
    """
    listed = (grid.price_document.get("storage_classes") or {}).get(cloud_of(src), {})
    known = {name: prices for name, prices in listed.items() if isinstance(prices, Mapping)}
    name, shares = grid.source_storage_class, grid.contents.classes
    if name is not None:
        if name not in known:
            raise ConfigurationInvalid.about(
                "{source_storage_class} {name} is not a class of {cloud} with a price of reading;"
                " those are {known}",
                name=name,
                cloud=cloud_of(src),
                known=", ".join(known) or "none",
            )
        shares = {name: 1.0}
    return {name: (known[name], share) for name, share in shares.items() if name in known}
