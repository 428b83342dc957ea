"""One transfer over an emulated area: planned, probed and achieved."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from bench.wan.area import Area, differing
from bench.wan.network import Counts
from bench.wan.scenario import Event
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob, objective_from_dict
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.units import bytes_to_gb, gb_to_bytes, gbit_to_gb, gbps_of

_POLL_S: Final = 0.1
_NUMBERS: Final = count()
#: Start and tail are outside of this part of the bytes.
_MIDDLE: Final = (0.2, 0.8)
_LEAST_POLLS: Final = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """What one transfer was planned to do and did.

    Attributes:
        plan: made on the grid; `fleet_plan` after a probe.
        probed_gbps: edge -> rate of its probe.
        carried_gbps: edge -> payload that the switch carried over the transfer's time.
        steady_gbps: arriving payload, without start and tail.
        after_gbps: goodput after the last event; None without one. What was under way at the
            event counts as arrived before it.
        differing: objects that are not the same bytes at both ends.
        late_share: packets that the switch let go over 2 ms too late.
        switch_cpu: of the switch, as a share of one processor.
    """

    plan: TransferPlan
    fleet_plan: TransferPlan
    result: TransferResult
    probed_gbps: dict[tuple[str, str], float]
    carried_gbps: dict[tuple[str, str], float]
    dropped: dict[tuple[str, str], int]
    steady_gbps: float | None
    after_gbps: float | None
    differing: Sequence[str]
    late_share: float
    switch_cpu: float

    @property
    def of_plan(self) -> float:
        """Achieved over planned, start and tail included."""
        return self.result.goodput_gbps / self.plan.throughput_gbps


@dataclass
class _Events:
    """Lets the events of a scenario happen once so much has arrived."""

    area: Area
    fleet: Fleet
    sink: str
    size_bytes: int
    events: list[Event]
    before: Counts = field(init=False)
    at_s: float | None = None
    left_bytes: float = 0.0
    #: Time and bytes that have arrived, at each poll.
    samples: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = self.area.network.counts()

    def look(self, _: TransferStatus) -> None:
        arrived = self._arrived_bytes()
        self.samples.append((time.monotonic(), arrived))
        if not self.events or arrived < self.events[0].at_share * self.size_bytes:
            return
        event = self.events.pop(0)
        self.at_s, self.left_bytes = time.monotonic(), self.size_bytes - arrived
        if event.kill:
            for gateway in self.fleet.gateways:
                if gateway.region == event.kill:
                    os.kill(int(gateway.details["pid"]), signal.SIGKILL)
        else:
            self.area.network.scale_pair(event.src, event.dst, event.rate_share)

    @property
    def steady_gbps(self) -> float | None:
        """The rate of the middle part of the bytes; None where too few polls saw it."""
        low, high = (share * self.size_bytes for share in _MIDDLE)
        middle = [(at_s, size) for at_s, size in self.samples if low <= size <= high]
        if len(middle) < _LEAST_POLLS:
            return None
        (began_s, first), (ended_s, last) = middle[0], middle[-1]
        return gbps_of(last - first, ended_s - began_s)

    def _arrived_bytes(self) -> int:
        """Payload at the sink's region, from other regions."""
        regions, now = self.area.grid.tags, self.area.network.counts()
        return sum(
            size - self.before.payload_bytes.get(pair, 0)
            for pair, size in now.payload_bytes.items()
            if pair[1] == self.sink and pair[0] in regions
        )


def planned(area: Area, src: str, dst: str, *, is_direct: bool = False) -> TransferPlan:
    """The plan of one transfer on the area's grid, and its volume."""
    scenario = area.scenario
    limits = replace(scenario.limits, max_relays=0) if is_direct else scenario.limits
    job = TransferJob(
        area.stores[src].place("planned"),
        area.stores[dst].place("planned"),
        objective=objective_from_dict(scenario.objective),
        limits=limits,
        volume_gb=1.0,
    )
    client = _client(area, {})
    plan = client.plan(job)
    return client.plan(replace(job, volume_gb=gbit_to_gb(plan.throughput_gbps * scenario.seconds)))


def _client(area: Area, settings: dict[str, object]) -> Client:
    made = area.network
    options = LocalOptions(
        run_root=area.folder / "run",
        address_map={tag: made.address(tag) for tag in area.grid.tags},
        launch_prefix={tag: made.enter(tag) for tag in area.grid.tags},
        processes_per_instance=1,
        gateway_settings=settings,
    )
    return Client(
        identity=RunIdentity("bench", "wan", str(next(_NUMBERS))),
        provisioner=LocalProvisioner(options),
        grid=area.grid_directory,
        poll_s=_POLL_S,
    )


@contextmanager
def running(area: Area, plan: TransferPlan) -> Iterator[Callable[[], Trial]]:
    """A fleet for a plan; each call copies the plan's volume once and compares the bytes."""
    scenario = area.scenario
    area.require_carried(plan)
    area.set_lines(plan)
    source, target = area.stores[plan.src], area.stores[plan.dst]
    size_bytes = area.fill(source, "source", gb_to_bytes(plan.volume_gb or 0.0))
    client = _client(area, {})
    job = TransferJob(
        source.place("source"),
        target.place("copy"),
        objective=objective_from_dict(plan.objective),
        limits=scenario.limits,
        volume_gb=bytes_to_gb(size_bytes),
        probe=scenario.probe,
    )
    fleet = client.provision(plan, job=job)
    numbers = count()

    def copy() -> Trial:
        prefix = f"copy-{next(numbers)}"
        area.set_lines(fleet.plan)  # A probe may have changed the connections.
        now = replace(job, destination=target.place(prefix))
        events = _Events(area, fleet, plan.dst, size_bytes, list(scenario.events))
        result = client.transfer(now, fleet, on_status=events.look)
        ended_s = time.monotonic()
        after_s = None if events.at_s is None else ended_s - events.at_s
        found = _trial(area, plan, fleet, result, events.before)
        wrong = differing(source, "source", target, prefix)
        target.objects.remove(f"{prefix}/")
        return replace(
            found,
            steady_gbps=events.steady_gbps,
            after_gbps=after_s and gbps_of(events.left_bytes, after_s),
            differing=wrong,
        )

    try:
        yield copy
    finally:
        client.teardown(fleet)
        source.objects.remove("source/")


def _trial(
    area: Area, plan: TransferPlan, fleet: Fleet, result: TransferResult, before: Counts
) -> Trial:
    after, regions = area.network.counts(), area.grid.tags
    carried = {
        pair: size - before.payload_bytes.get(pair, 0)
        for pair, size in after.payload_bytes.items()
        if pair[0] in regions and pair[1] in regions
    }
    packets = after.packets - before.packets
    return Trial(
        plan,
        fleet.plan,
        result,
        {(one.src, one.dst): one.gbps for one in fleet.probes},
        {pair: gbps_of(size, result.seconds) for pair, size in carried.items()},
        {pair: many - before.dropped.get(pair, 0) for pair, many in after.dropped.items()},
        None,
        None,
        (),
        (after.late - before.late) / max(packets, 1),
        (after.cpu_s - before.cpu_s) / result.seconds,
    )
