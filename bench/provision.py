"""What a fleet costs beside the bytes.

    python -m bench.provision [--json] [--smoke] [--rounds N]

`local-ready` is the time until four gateways on this machine are up and connected, from a plan.
`bench.instances` has the cases of fleets on instances: `fleet-ready`, `teardown` and `calls`. A
smoke run has no floors. `bench.link` has the CPU of encryption.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from unittest.mock import patch

from bench import instances
from bench.contest import options_of
from bench.copy import bodies_of
from bench.places import Places, Unavailable, open_places
from bench.report import Case, finish, spread_of
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

ROUNDS, INSTANCE_ROUNDS = 5, 3
OBJECTS, OBJECT_BYTES = 16, 64 << 20
SMOKE_OBJECTS, SMOKE_BYTES = 2, 9 << 20
SOURCE_REGION, TARGET_REGION = "aws:us-east-1", "gcp:europe-west3"

FLOOR_READY_S, GOAL_READY_S = 1.6, 1.0


class Fleets:
    """Fleets of local gateways between two places."""

    def __init__(self, places: Places, objects: int, size_bytes: int) -> None:
        self._places = places
        self._numbers = count()
        places.fill(0, bodies_of(objects, size_bytes))

    def seconds_until_ready(self) -> float:
        """From a plan of four gateways until all are connected."""
        client = self._client()
        job = self._job()
        with patch.dict(os.environ, self._places.environment):
            plan = client.plan(job)
            count_of_gateways = sum(group.count for group in plan.instances.values())
            assert count_of_gateways == 4, f"the plan has {count_of_gateways} gateways"
            began = time.perf_counter()
            fleet = client.provision(plan)
            seconds = time.perf_counter() - began
            client.teardown(fleet)
        return seconds

    def _job(self) -> TransferJob:
        near, far = self._places.urls
        here, there = self._places.endpoints
        trusted = {"checksum": "trusted"}
        target = f"{far}/copy-{next(self._numbers)}/"
        return TransferJob(
            Location(f"{near}/large/", region=SOURCE_REGION, endpoint_url=here),
            Location(target, region=TARGET_REGION, endpoint_url=there, options=trusted),
            objective=MaximizeThroughput(max_usd_per_gb=0.2),
            limits=Limits(instance_limit=2, max_relays=0),
        )

    def _client(self) -> Client:
        return Client(
            identity=RunIdentity("bench", "provision", str(random.getrandbits(64))),
            provisioner=LocalProvisioner(LocalOptions(run_root=self._places.folder / "fleet")),
        )


def ready_case(fleets: Fleets, rounds: int) -> Case:
    ready = [fleets.seconds_until_ready() for _ in range(rounds)]
    middle = statistics.median(ready)
    bounds = FLOOR_READY_S, GOAL_READY_S
    return Case("local-ready", middle, "s", None, "four gateways", *bounds, spread_of(ready))


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(__doc__, arguments)
    work = (SMOKE_OBJECTS, SMOKE_BYTES) if options.smoke else (OBJECTS, OBJECT_BYTES)
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    cases: list[Case] = []
    try:
        with open_places("s3") as places:
            cases.append(ready_case(Fleets(places, *work), rounds))
    except Unavailable as error:
        print(f"cases of local gateways are left out: {error}", file=sys.stderr)
    on_clouds = 1 if options.smoke else options.rounds or INSTANCE_ROUNDS
    cases += instances.measure(on_clouds, is_smoke=options.smoke)
    if options.smoke:
        cases = [replace(case, floor=None, goal=None) for case in cases]
    return finish("provision", cases, runs=rounds, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
