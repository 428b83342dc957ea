"""What real clouds would have billed for what fake ones have had.

    bill = bill_of([ec2.usage, gce.usage], world)
    print(bill.total_usd, bill.by_item())

It bills every second of every machine, its address, its disk, and every byte that it has sent to
another machine, as the kernel has counted it (`machine_site`). Prices are those of `prices.json`.
Nothing here is shared with the programs that are billed, so that it can tell what they forget.
Free amounts, discounts and taxes are left out, and so are the headers of packets.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from strict_clouds.usage import Usage, UsedMachine
from strict_clouds.world import World

_PRICES: Final = Path(__file__).with_name("prices.json")
_GIB: Final = 2**30
_SECONDS_PER_HOUR: Final = 3600
_HOURS_PER_MONTH: Final = 730
#: A request in the log of moto's server (S3), and of fake-gcs-server with its level `info`.
_REQUEST: Final = re.compile(r'\b(GET|HEAD|PUT|POST|DELETE) (/\S*) HTTP/1\.[01]\\?" (\d{3})')


@dataclass(frozen=True, slots=True)
class MachineLine:
    """The bill of one machine."""

    machine: UsedMachine
    billed_s: float
    usd: float


@dataclass(frozen=True, slots=True)
class EgressLine:
    """What machines of one region have sent to those of another."""

    source: str
    target: str
    size_bytes: int
    usd: float


@dataclass(frozen=True, slots=True)
class Bill:
    """All lines, in USD."""

    machines: tuple[MachineLine, ...]
    egress: tuple[EgressLine, ...]
    addresses_usd: float
    disks_usd: float
    requests: Mapping[str, int] = field(default_factory=dict)
    requests_usd: float = 0.0

    @property
    def machines_usd(self) -> float:
        return sum(line.usd for line in self.machines)

    @property
    def egress_usd(self) -> float:
        return sum(line.usd for line in self.egress)

    @property
    def total_usd(self) -> float:
        return sum(self.by_item().values())

    def by_item(self) -> dict[str, float]:
        return {
            "egress": self.egress_usd,
            "instances": self.machines_usd,
            "requests": self.requests_usd,
            "addresses": self.addresses_usd,
            "disks": self.disks_usd,
        }


def bill_of(usages: Iterable[Usage], world: World, logs: Mapping[str, str] | None = None) -> Bill:
    """The bill until now.

    Args:
        logs: cloud -> what the server of its store has logged since the beginning of the run.

    Raises KeyError for a region, type or way without a price.
    """
    prices = json.loads(_PRICES.read_text())
    used = [machine for usage in usages for machine in usage.machines()]
    now_s = time.time()
    requests = {
        f"{cloud} {kind}": count
        for cloud, log in (logs or {}).items()
        for kind, count in requests_of(log).items()
    }
    return Bill(
        machines=tuple(_machine_line(machine, now_s, prices) for machine in used),
        egress=_egress(used, world, prices),
        addresses_usd=sum(
            _hours(machine, now_s) * prices["addresses"][_cloud(machine.region)]["usd_per_hour"]
            for machine in used
            if machine.has_address
        ),
        disks_usd=sum(
            _hours(machine, now_s)
            / _HOURS_PER_MONTH
            * machine.disk_gib
            * prices["disks"][_cloud(machine.region)]["usd_per_gib_month"]
            for machine in used
        ),
        requests=requests,
        requests_usd=sum(
            count * prices["requests"][cloud][kind]
            for name, count in requests.items()
            for cloud, kind in (name.split(),)
        ),
    )


def requests_of(log: str) -> dict[str, int]:
    """`read` and `write` -> requests that a store has answered; deletes cost nothing."""
    found: Counter[str] = Counter(read=0, write=0)
    for method, path, _ in _REQUEST.findall(log):
        is_list = "list-type=" in path or re.search(r"/b/[^/]+/o(\?|$)", path) is not None
        if method in ("PUT", "POST") or (method == "GET" and is_list):
            found["write"] += 1
        elif method in ("GET", "HEAD"):
            found["read"] += 1
    return dict(found)


def _machine_line(machine: UsedMachine, now_s: float, prices: Any) -> MachineLine:
    price = {(row["region"], row["type"]): row["usd_per_hour"] for row in prices["machines"]}[
        machine.region, machine.kind
    ]
    least_s = prices["minimum_s"][_cloud(machine.region)]["seconds"]
    billed_s = max(_hours(machine, now_s) * _SECONDS_PER_HOUR, least_s)
    return MachineLine(machine, billed_s, billed_s / _SECONDS_PER_HOUR * price)


def _egress(used: Iterable[UsedMachine], world: World, prices: Any) -> tuple[EgressLine, ...]:
    machine_at = {machine.address: machine for machine in used}
    sent: Counter[tuple[str, str, str]] = Counter()
    for machine in world.machines:
        sender = machine_at[machine.address]
        for peer, size in machine.sent_bytes().items():
            sent[sender.region, machine_at[peer].region, sender.network_tier] += size
    return tuple(
        EgressLine(source, target, size, size / _GIB * _egress_price(source, target, tier, prices))
        for (source, target, tier), size in sorted(sent.items())
        if source != target
    )


def _egress_price(source: str, target: str, tier: str, prices: Any) -> float:
    """The price to that very region, if it has one; else to the same cloud or the internet."""
    if _cloud(source) != _cloud(target) and tier == "STANDARD":
        return float(prices["standard_tier_usd_per_gib"][source]["usd_per_gib"])
    way = "internet" if _cloud(source) != _cloud(target) else _cloud(target)
    rows = {row["to"]: row["usd_per_gib"] for row in prices["egress"] if row["from"] == source}
    return float(rows[target] if target in rows else rows[way])


def _hours(machine: UsedMachine, now_s: float) -> float:
    end_s = now_s if machine.ended_unix_s is None else machine.ended_unix_s
    return (end_s - machine.began_unix_s) / _SECONDS_PER_HOUR


def _cloud(region: str) -> str:
    return region.partition(":")[0]
