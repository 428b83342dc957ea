"""What a fleet costs beside the bytes: its start, and the encryption from source to sink.

    python -m bench.provision [--json] [--smoke] [--rounds N]

`local-ready` is the time until four gateways on this machine are up and connected, from a plan.
`sealed` is the CPU that encryption takes at each end of a transfer: each round copies the same
large objects between two gateways in plain text and encrypted. `bench.instances` has the cases of
fleets on instances: `fleet-ready`, `teardown` and `calls`. A smoke run has no floors.
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
from bench.places import Places, Unavailable, cpu_s_of, open_places
from bench.report import Case, finish, spread_of
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Encryption, Limits, MaximizeThroughput, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

ROUNDS, INSTANCE_ROUNDS = 5, 3
OBJECTS, OBJECT_BYTES = 16, 64 << 20
SMOKE_OBJECTS, SMOKE_BYTES = 2, 9 << 20
SOURCE_REGION, TARGET_REGION = "aws:us-east-1", "gcp:europe-west3"

FLOOR_SEALED_S, GOAL_SEALED_S = 0.3, 0.2
FLOOR_READY_S, GOAL_READY_S = 1.6, 1.0


class Fleets:
    """Fleets of local gateways between two places."""

    def __init__(self, places: Places, objects: int, size_bytes: int) -> None:
        self._places = places
        self._objects = objects
        self._gb = objects * size_bytes / 1e9
        self._numbers = count()
        places.fill(0, bodies_of(objects, size_bytes))

    def cpu_s_per_gb(self, encrypt: Encryption) -> tuple[float, float]:
        """CPU seconds per GB of the source and of the sink during one transfer."""
        job, client = self._job(encrypt), self._client()
        with patch.dict(os.environ, self._places.environment):
            fleet = client.provision(client.plan(job))
            try:
                pids = [int(one.details["pid"]) for one in (fleet.sources[0], fleet.sinks[0])]
                before = [cpu_s_of(pid) for pid in pids]
                client.transfer(job, fleet)
                used = [cpu_s_of(pid) - was for pid, was in zip(pids, before, strict=True)]
                return used[0] / self._gb, used[1] / self._gb
            finally:
                client.teardown(fleet)
                self._places.remove_copies(self._objects)

    def seconds_until_ready(self) -> float:
        """From a plan of four gateways until all are connected."""
        client = self._client()
        job = self._job("never", instances=2)
        with patch.dict(os.environ, self._places.environment):
            plan = client.plan(job)
            count_of_gateways = sum(group.count for group in plan.instances.values())
            assert count_of_gateways == 4, f"the plan has {count_of_gateways} gateways"
            began = time.perf_counter()
            fleet = client.provision(plan)
            seconds = time.perf_counter() - began
            client.teardown(fleet)
        return seconds

    def _job(self, encrypt: Encryption, instances: int = 1) -> TransferJob:
        near, far = self._places.urls
        here, there = self._places.endpoints
        trusted = {"checksum": "trusted"}
        target = f"{far}/copy-{next(self._numbers)}/"
        return TransferJob(
            Location(f"{near}/large/", region=SOURCE_REGION, endpoint_url=here),
            Location(target, region=TARGET_REGION, endpoint_url=there, options=trusted),
            objective=MaximizeThroughput(max_usd_per_gb=0.2),
            limits=Limits(instance_limit=instances, max_relays=0),
            encrypt=encrypt,
        )

    def _client(self) -> Client:
        return Client(
            identity=RunIdentity("bench", "provision", str(random.getrandbits(64))),
            provisioner=LocalProvisioner(LocalOptions(run_root=self._places.folder / "fleet")),
        )


def cases_of(fleets: Fleets, rounds: int) -> list[Case]:
    """Both cases, rounds interleaved."""
    more: list[float] = []
    ready: list[float] = []
    for _ in range(rounds):
        plain = fleets.cpu_s_per_gb("never")
        sealed = fleets.cpu_s_per_gb("always")
        more.append(max(one - other for one, other in zip(sealed, plain, strict=True)))
        ready.append(fleets.seconds_until_ready())
    return [
        _case("sealed", more, FLOOR_SEALED_S, GOAL_SEALED_S, "plain, CPU s/GB at one end"),
        _case("local-ready", ready, FLOOR_READY_S, GOAL_READY_S, "four gateways"),
    ]


def _case(name: str, values: Sequence[float], floor: float, goal: float, against: str) -> Case:
    middle = statistics.median(values)
    return Case(name, middle, "s", None, against, floor, goal, spread_of(values))


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(__doc__, arguments)
    work = (SMOKE_OBJECTS, SMOKE_BYTES) if options.smoke else (OBJECTS, OBJECT_BYTES)
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    cases: list[Case] = []
    try:
        with open_places("s3") as places:
            cases += cases_of(Fleets(places, *work), rounds)
    except Unavailable as error:
        print(f"cases of local gateways are left out: {error}", file=sys.stderr)
    on_clouds = 1 if options.smoke else options.rounds or INSTANCE_ROUNDS
    cases += instances.measure(on_clouds, is_smoke=options.smoke)
    if options.smoke:
        cases = [replace(case, floor=None, goal=None) for case in cases]
    return finish("provision", cases, runs=rounds, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
