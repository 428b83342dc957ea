"""Fleets on fake clouds with the delays of real ones; `bench.provision` runs this.

`fleet-ready` is the time from a plan of eight gateways in four regions of three clouds until all
are connected, against a single instance of the slowest cloud. `teardown` is the time until all is
gone, against the same. `calls` is the number of API calls of such a fleet, from its start to its
end, in all and by action. `looks` is the number of calls that describe instances, per second and
region: each asks for all instances of a region at once, so it does not grow with their number.

The fake of EC2 takes as long as EC2 was measured to take: 23 s from the launch to the boot script
(API, pending, kernel; see docs/reference/performance.md), and 30 s to end. Those of Compute Engine
and Azure take what is commonly seen: 30 s and 60 s to boot, 40 s and 60 s to end.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.clouds.fakes import open_arm, open_ec2, open_gce
from tests.clouds.gateways import GATEWAY, IMAGE
from tests.provision.samples import make_plan

from bench.report import Case, spread_of
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.provision.cloud_registry import parse_clouds
from skyplane_orchestration.security.store_credentials import CredentialSources
from strict_clouds.arm import SUBSCRIPTION, StrictArm
from strict_clouds.ec2 import StrictEc2
from strict_clouds.gce import PROJECT, StrictGce
from strict_clouds.machines import Machine
from strict_clouds.world import World

POLL_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds from a launch to the boot script, and from a delete to its end."""

    boot_s: float
    end_s: float


DELAYS: Final = {
    "aws": Delays(23.0, 30.0),
    "gcp": Delays(30.0, 40.0),
    "azure": Delays(60.0, 60.0),
}
TYPES: Final = {"aws": "c7gn.large", "gcp": "n2-standard-4", "azure": "Standard_D4s_v5"}
REGIONS: Final = ("aws:us-east-1", "azure:eastus", "aws:eu-west-1", "gcp:europe-west1")
SLOWEST: Final = "azure:eastus"
FLOOR: Final = 1.2
#: A look every two seconds and a few at the start; one for each of two instances would be above.
FLOOR_LOOKS, GOAL_LOOKS = 0.9, 0.65
LOOKS: Final = ("aws DescribeInstances", "gcp instances.aggregatedList", "azure machines.list")


@dataclass(frozen=True, slots=True)
class Life:
    """One fleet: seconds until it was up, seconds until it was gone, and its API calls."""

    ready_s: float
    teardown_s: float
    calls: Counter[str]


@dataclass(frozen=True, slots=True)
class Booting:
    """The machines of one cloud."""

    world: World
    boot_s: float

    def boot(self, user_data: str, *, metadata_url: str = "") -> Machine:
        return self.world.boot(user_data, metadata_url=metadata_url, boot_s=self.boot_s)


@dataclass(frozen=True, slots=True)
class Fakes:
    """The three fakes."""

    ec2: StrictEc2
    gce: StrictGce
    arm: StrictArm

    def settings(self) -> dict[str, Any]:
        """The document of a clouds file."""
        return {
            "image": IMAGE.image,
            "control_cidrs": ["127.0.0.1/32"],
            "processes_per_instance": 1,
            "poll_s": POLL_S,
            "aws": {"endpoint_url": self.ec2.url},
            "gcp": {"endpoint_url": self.gce.url, "project": PROJECT},
            "azure": {"endpoint_url": self.arm.url, "subscription_id": SUBSCRIPTION},
        }

    def calls(self) -> Counter[str]:
        """All until now."""
        return Counter(
            [f"aws {call.action}" for call in self.ec2.calls]
            + [f"gcp {call.method}" for call in self.gce.calls]
            + [f"azure {call.rule}" for call in self.arm.calls]
        )

    def require_empty(self) -> None:
        left = {**self.ec2.leftovers(), **self.gce.leftovers(), **self.arm.leftovers()}
        assert left == {}, f"something is left: {left}"


@contextmanager
def fakes_of(world: World, delays: Mapping[str, Delays]) -> Iterator[Fakes]:
    """Accounts without resources, whose clouds take so long."""
    machines = {cloud: Booting(world, delay.boot_s) for cloud, delay in delays.items()}
    with (
        open_ec2(machines["aws"], deployments=("bench",)) as ec2,
        open_gce(machines["gcp"]) as gce,
        open_arm(machines["azure"]) as arm,
    ):
        gce.conditions.now_s = time.time()
        gce.conditions.deleting_for = 1
        for region in REGIONS:
            cloud, _, name = region.partition(":")
            if cloud == "aws":
                ec2.conditions.opt_in[name] = "opt-in-not-required"
        for conditions, cloud in (
            (ec2.conditions, "aws"),
            (gce.conditions, "gcp"),
            (arm.conditions, "azure"),
        ):
            conditions.ending_s = delays[cloud].end_s
        yield Fakes(ec2, gce, arm)


class Fleets:
    """Brings up fleets on fakes."""

    def __init__(self, fakes: Fakes, folder: Path) -> None:
        self._fakes = fakes
        self._environment = {
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_EC2_METADATA_DISABLED": "true",
            "XDG_CONFIG_HOME": str(folder),
        }

    def live(self, plan: TransferPlan) -> Life:
        """Bring one fleet up, and take it down."""
        before = self._fakes.calls()
        with patch.dict(os.environ, self._environment):
            client = Client(
                identity=RunIdentity("bench", "instances", str(random.getrandbits(64))),
                provisioner=parse_clouds(self._fakes.settings()).open(CredentialSources()),
            )
            began = time.perf_counter()
            fleet = client.provision(plan)
            ready_s = time.perf_counter() - began
            began = time.perf_counter()
            client.teardown(fleet)
            teardown_s = time.perf_counter() - began
        self._fakes.require_empty()
        return Life(ready_s, teardown_s, self._fakes.calls() - before)


def plan_of(paths: Sequence[Sequence[str]], counts: Mapping[str, int]) -> TransferPlan:
    plan = make_plan([(path, 5.0) for path in paths], counts)
    groups = {
        region: InstanceGroup(TYPES[region.partition(":")[0]], count)
        for region, count in counts.items()
    }
    return replace(plan, instances=groups)


def cases_of(fleets: Fleets, rounds: int) -> list[Case]:
    """All cases, rounds interleaved."""
    first, second, third, last = REGIONS
    eight = plan_of(
        [(first, last), (first, second, last), (first, third, last)],
        dict.fromkeys(REGIONS, 2),
    )
    one = plan_of([(SLOWEST,)], {SLOWEST: 1})
    ready: list[float] = []
    ended: list[float] = []
    looks: list[float] = []
    calls: Counter[str] = Counter()
    for _ in range(rounds):
        alone, together = fleets.live(one), fleets.live(eight)
        ready.append(together.ready_s / alone.ready_s)
        ended.append(together.teardown_s / alone.teardown_s)
        calls = together.calls
        seconds = together.ready_s + together.teardown_s
        looks.append(sum(calls[name] for name in LOOKS) / len(REGIONS) / seconds)
    middle = statistics.median(looks)
    return [
        _case("fleet-ready", ready),
        _case("teardown", ended),
        Case(
            "looks",
            middle,
            "calls/s",
            None,
            "per region of two instances",
            FLOOR_LOOKS,
            GOAL_LOOKS,
            spread_of(looks),
        ),
        _calls("calls", calls.total()),
        *(_calls(f"calls {action}", number) for action, number in calls.most_common()),
    ]


def _calls(name: str, number: int) -> Case:
    return Case(name, float(number), "calls", None, "eight gateways, three clouds")


def _case(name: str, values: Sequence[float]) -> Case:
    middle = statistics.median(values)
    spread = spread_of(values)
    return Case(name, middle, "x time", middle, f"one in {SLOWEST}", FLOOR, FLOOR, spread)


def measure(rounds: int, *, is_smoke: bool) -> list[Case]:
    """All cases; in a smoke run the clouds have no delays."""
    delays = dict.fromkeys(DELAYS, Delays(0.0, 0.0)) if is_smoke else DELAYS
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        World(Path(folder, "machines"), GATEWAY) as world,
        fakes_of(world, delays) as fakes,
    ):
        return cases_of(Fleets(fakes, Path(folder)), rounds)
