"""Three fake clouds in one world of machines, for the demo of instances."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.clouds.fakes import open_arm, open_ec2, open_gce
from tests.clouds.gateways import GATEWAY

from strict_clouds.arm import SUBSCRIPTION, StrictArm
from strict_clouds.bill import Bill, bill_of
from strict_clouds.ec2 import StrictEc2
from strict_clouds.gce import PROJECT, StrictGce
from strict_clouds.world import World

#: Seconds until a fleet on these fakes answers.
PROVISION_S: Final = 10.0
#: The clouds' own words for what may be left -> the word of the summary.
_KINDS: Final = {
    "instances": "instances",
    "Microsoft.Compute/virtualMachines": "instances",
    "volumes": "disks",
    "disks": "disks",
    "Microsoft.Compute/disks": "disks",
    "addresses": "addresses",
    "Microsoft.Network/publicIPAddresses": "addresses",
    "network-interfaces": "interfaces",
    "Microsoft.Network/networkInterfaces": "interfaces",
    "security-groups": "groups",
    "groups": "groups",
    "Microsoft.Network/networkSecurityGroups": "groups",
    "rules": "rules",
    "firewalls": "rules",
    "key-pairs": "keys",
    "Microsoft.Network/virtualNetworks": "networks",
}


@dataclass(frozen=True, slots=True)
class FakeClouds:
    """The fakes, and the machines of all their instances."""

    world: World
    ec2: StrictEc2
    gce: StrictGce
    arm: StrictArm

    def left(self) -> dict[str, int]:
        """How many things of each kind are left in all clouds; all kinds, also those without."""
        found: Counter[str] = Counter(dict.fromkeys(_KINDS.values(), 0))
        for fake in (self.ec2, self.gce, self.arm):
            for kind, names in fake.leftovers().items():
                found[_KINDS[kind]] += len(names)
        return dict(found)

    def bill(self, logs: Mapping[str, str]) -> Bill:
        """What real clouds would have billed; `logs` as in `bill_of`."""
        return bill_of([self.ec2.usage, self.gce.usage, self.arm.usage], self.world, logs)

    def running(self) -> int:
        """Machines that run; a cloud may have forgotten one."""
        return sum(machine.is_running for machine in self.world.machines)

    def write_settings(self, path: Path) -> None:
        """Write the clouds file of a user."""
        document = {
            "control_cidrs": ["127.0.0.1/32"],
            "poll_s": 0.5,
            "provision_s": dict.fromkeys(("aws", "gcp", "azure"), PROVISION_S),
            "aws": {"endpoint_url": self.ec2.url},
            "gcp": {"endpoint_url": self.gce.url, "project": PROJECT},
            "azure": {"endpoint_url": self.arm.url, "subscription_id": SUBSCRIPTION},
        }
        path.write_text(json.dumps(document))


@contextmanager
def fake_clouds(directory: Path, opted_in: str) -> Iterator[FakeClouds]:
    """Accounts without resources; `opted_in` is a region of AWS that the account may use."""
    with (
        World(directory, GATEWAY) as world,
        open_ec2(world, deployments=("demo",)) as ec2,
        open_gce(world) as gce,
        open_arm(world) as arm,
    ):
        ec2.conditions.opt_in[opted_in] = "opt-in-not-required"
        gce.conditions.now_s = time.time()
        yield FakeClouds(world, ec2, gce, arm)
