"""The orchestrator of a world: the real client, in a thread of a process that may die."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Generic, TypeVar

from tests.simulation.fleet import IDENTITY, SimProvisioner
from tests.simulation.world import Process, World

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import SkyplaneError, TransferFailed
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.security.authority import Authority
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer

T = TypeVar("T")

_SRC, _DST = "aws:us-east-1", "aws:eu-west-3"

_PLAN = TransferPlan(
    src=_SRC,
    dst=_DST,
    objective={},
    throughput_gbps=1.0,
    volume_gb=None,
    transfer_s=None,
    provision_s=0.0,
    cost=PlanCost(None, None, None, None, 0.0),
    instances={_SRC: InstanceGroup("process", 1), _DST: InstanceGroup("process", 1)},
    edges=(),
    paths=(PlanPath((_SRC, _DST), 1.0),),
    binding=(),
    solver=SolverReport("optimal", 0.0, 0.0, 0.0),
    grid=GridReference("simulated", "2026-01-01", "measured"),
)


class SimClient(Client):
    """The real client, but for what it proves itself by."""

    def __init__(self, world: World, provisioner: SimProvisioner) -> None:
        super().__init__(
            identity=IDENTITY,
            provisioner=provisioner,
            credentials=CredentialSources(is_ambient_allowed=False),
            # Its monotonic time stands still: no credentials expire here, and the check for
            # that would delay polls.
            clock=Clock(lambda: 0.0, world.clock.wall, world.sleep),
            rng=random.Random(world.seed),
        )
        self._sim_authority = provisioner.authority

    def authority(self, fleet_key: str) -> Authority:
        authority: Any = self._sim_authority
        found: Authority = authority
        return found


@dataclass
class Orchestrator:
    """One run of the client, and how it ended.

    Args:
        handle: resumes that transfer, in place of running the job.
    """

    process: Process
    provisioner: SimProvisioner
    job: TransferJob
    handle: str = ""
    result: TransferResult | None = None
    error: SkyplaneError | None = None
    #: An exception that is no error of the library: a defect.
    crash: str = ""
    is_over: bool = False
    submitted: list[tuple[Fleet, SubmittedTransfer]] = field(default_factory=list)

    @property
    def has_only_joined(self) -> bool:
        """Whether its result is that of the very epoch that an earlier one had submitted: no
        lead has listed anything for it."""
        if not self.submitted or self.result is None:
            return False
        submitted = self.submitted[-1][1]
        return submitted.joined and self.result.epoch == submitted.epoch

    def start(self) -> None:
        self.process.world.start_thread(self.process, self._run)

    def _run(self) -> None:
        client = SimClient(self.process.world, self.provisioner)
        try:
            self.result = client.resume(self.handle) if self.handle else self._transfer(client)
        except TransferFailed as error:
            self.error = error
            if isinstance(error.result, TransferResult):
                self.result = error.result
        except SkyplaneError as error:
            self.error = error
        except Exception:  # noqa: BLE001 - any other error is a finding
            self.crash = traceback.format_exc()
        self.is_over = True

    def _transfer(self, client: SimClient) -> TransferResult:
        fleet = client.provision(_PLAN)
        return client.transfer(
            self.job, fleet, on_submitted=lambda *what: self.submitted.append(what)
        )


@dataclass
class Canceller:
    """Somebody else who has a transfer cancelled."""

    process: Process
    provisioner: SimProvisioner
    fleet: Fleet
    submitted: SubmittedTransfer
    is_over: bool = False

    def start(self) -> None:
        self.process.world.start_thread(self.process, self._run)

    def _run(self) -> None:
        SimClient(self.process.world, self.provisioner).cancel(self.fleet, self.submitted)
        self.is_over = True


@dataclass
class _Answer(Generic[T]):
    world: World
    waiting: list[Callable[[], None]] = field(default_factory=list)
    value: T | None = None
    error: BaseException | None = None
    is_there: bool = False

    def result(self) -> T:
        if not self.is_there:
            self.world.block(self.waiting.append)
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


class SimPool:
    """Stands where a `ThreadPoolExecutor` is used for calls side by side."""

    def __init__(self, world: World, workers: int, thread_name_prefix: str = "") -> None:
        self._world = world
        self._answers: list[_Answer[Any]] = []

    def submit(self, call: Callable[..., T], *arguments: Any) -> _Answer[T]:
        answer: _Answer[T] = _Answer(self._world)

        def run() -> None:
            try:
                answer.value = call(*arguments)
            except Exception as error:  # noqa: BLE001 - it is raised where it is asked for
                answer.error = error
            answer.is_there = True
            for wake in answer.waiting:
                wake()

        self._answers.append(answer)
        self._world.start_thread(self._world.thread.process, run)
        return answer

    def __enter__(self) -> SimPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for answer in self._answers:
            if not answer.is_there:
                self._world.block(answer.waiting.append)
