"""Fleets on fake clouds with the delays of real ones: what of a start and an end is ours.

    python -m bench.instances [--json] [--smoke] [--rounds N]

`fleet-ready` is the time from a plan of eight gateways in four regions until all are connected,
against a single instance. `teardown` is the time until all is gone, against a single instance.
`calls` is the number of API calls of such a fleet, from its start to its end; those of the polls
grow with the time that a cloud takes, and not with the number of instances.

The fakes take as long as EC2 was measured to take: 23 s from the launch to the boot script
(API, pending, kernel; see docs/reference/performance.md), and 30 s to end.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.clouds.ec2 import StrictEc2, strict_ec2
from tests.clouds.world import IMAGE, World
from tests.provision.samples import make_plan

from bench.contest import options_of
from bench.report import Case, finish, spread_of
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.provision.clouds_file import parse_clouds
from skyplane_orchestration.security.credentials import CredentialSources

ROUNDS: Final = 3
POLL_S: Final = 2.0
BOOT_S, END_S = 23.0, 30.0
SMOKE_S: Final = 0.0

REGIONS: Final = ("aws:us-east-1", "aws:us-west-2", "aws:eu-west-1", "aws:eu-central-1")
FLOOR: Final = 1.2


@dataclass(frozen=True, slots=True)
class Life:
    """One fleet: seconds until it was up, seconds until it was gone, and its API calls."""

    ready_s: float
    teardown_s: float
    calls: Counter[str]


class Fleets:
    """Brings up fleets on a strict EC2."""

    def __init__(self, ec2: StrictEc2, folder: Path) -> None:
        self._ec2 = ec2
        self._environment = {
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_EC2_METADATA_DISABLED": "true",
            "XDG_CONFIG_HOME": str(folder),
        }
        for region in REGIONS:
            ec2.conditions.opt_in[region.partition(":")[2]] = "opt-in-not-required"

    def live(self, plan: TransferPlan) -> Life:
        """Bring one fleet up, and take it down."""
        before = len(self._ec2.calls)
        document = {
            "image": IMAGE.image,
            "control_cidrs": ["127.0.0.1/32"],
            "processes_per_instance": 1,
            "poll_s": POLL_S,
            "aws": {"endpoint_url": self._ec2.url},
        }
        with patch.dict(os.environ, self._environment):
            client = Client(
                identity=RunIdentity("bench", "instances", str(random.getrandbits(64))),
                provisioner=parse_clouds(document).open(CredentialSources()),
            )
            began = time.perf_counter()
            fleet = client.provision(plan)
            ready_s = time.perf_counter() - began
            began = time.perf_counter()
            client.teardown(fleet)
            teardown_s = time.perf_counter() - began
        assert self._ec2.leftovers() == {}, "something is left"
        calls = Counter(call.action for call in self._ec2.calls[before:])
        return Life(ready_s, teardown_s, calls)


def plan_of(paths: Sequence[Sequence[str]], counts: Mapping[str, int]) -> TransferPlan:
    plan = make_plan([(path, 5.0) for path in paths], counts)
    groups = {region: InstanceGroup("c7gn.large", count) for region, count in counts.items()}
    return replace(plan, instances=groups)


def cases_of(fleets: Fleets, rounds: int) -> list[Case]:
    """All cases, rounds interleaved."""
    first, second, third, last = REGIONS
    eight = plan_of(
        [(first, last), (first, second, last), (first, third, last)],
        dict.fromkeys(REGIONS, 2),
    )
    one = plan_of([(first,)], {first: 1})
    ready: list[float] = []
    ended: list[float] = []
    calls: Counter[str] = Counter()
    for _ in range(rounds):
        alone, together = fleets.live(one), fleets.live(eight)
        ready.append(together.ready_s / alone.ready_s)
        ended.append(together.teardown_s / alone.teardown_s)
        calls = together.calls
    print(", ".join(f"{action} {count}" for action, count in calls.most_common()), file=sys.stderr)
    return [
        _case("fleet-ready", ready),
        _case("teardown", ended),
        Case("calls", float(calls.total()), "calls", None, "eight gateways in four regions"),
    ]


def _case(name: str, values: Sequence[float]) -> Case:
    middle = statistics.median(values)
    spread = spread_of(values)
    return Case(name, middle, "x time", middle, "a single instance", FLOOR, FLOOR, spread)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(__doc__, arguments)
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    boot_s, end_s = (SMOKE_S, SMOKE_S) if options.smoke else (BOOT_S, END_S)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        World(Path(folder, "machines"), boot_s=boot_s) as world,
        strict_ec2(world) as ec2,
    ):
        # A description is one poll nearer to the end.
        ec2.conditions.shutting_down_for = max(1, round(end_s / POLL_S))
        cases = cases_of(Fleets(ec2, Path(folder)), rounds)
    return finish("instances", cases, runs=rounds, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
