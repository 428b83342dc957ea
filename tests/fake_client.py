"""A client that answers without gateways, for Airflow, Dagster and the command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from tests.transfer import samples

from skyplane_orchestration.errors import NotFound, TooManyFleets
from skyplane_orchestration.model.fleet import Fleet, GatewayHandle
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import PlanCost, TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.provisioner import TeardownReport
from skyplane_orchestration.storage.compare import VerifyReport
from skyplane_orchestration.storage.place_digest import SourceVersion
from skyplane_orchestration.transfer.fan_out import FanOut
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer
from skyplane_orchestration.transfer.fleet_slot_wait import FleetWait
from skyplane_orchestration.transfer.run_options import RunOptions
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer, WatchEnd

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"
NODE = f"{DST}/0"
LOG = "\n".join(f"line {number}" for number in range(100))

PLAN = replace(
    samples.PLAN,
    src=SRC,
    dst=DST,
    throughput_gbps=3.0,
    cost=PlanCost(0.02, 0.01, None, 0.03, 0.03),
    notes=("a price was never verified",),
)


@dataclass
class FakeClient:
    """Records the calls and raises the errors of the test.

    Attributes:
        calls: verbs and their arguments.
        places: where its gateways may run, each time that it was opened.
        errors: verb -> errors of its next calls, one each.
        meanwhile: is called while the client works on a fleet or a transfer.
        found: gateways of the fleet that the provisioner describes.
        joined: whether the transfer runs already.
        moved_to: key of the fleet on which a transfer ends, if it is another.
        result: of every transfer, but for its ends.
        is_unchanged: whether there is nothing to copy.
        report: of every comparison.
        place_manifest: of every place; None: there is none.
        still_runs: whether the lead answers that the transfer runs.
        status: what a transfer shows while it runs; None: nothing.
        early_end: how a watch of the first seconds ends; None: the transfer runs longer.
        full: what the next looks at the deployment's fleets find.
        regions: destination -> its region, where a copy to several needs gateways for it; None:
            for all of them.
        provisioner_name: of the client's provisioner.
    """

    identity: RunIdentity = field(default_factory=lambda: RunIdentity("local", "dag", "run"))
    calls: list[tuple[str, Any]] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    errors: dict[str, list[BaseException]] = field(default_factory=dict)
    meanwhile: Callable[[], None] = lambda: None
    found: tuple[str, ...] = ()
    joined: bool = False
    moved_to: str = ""
    result: TransferResult = field(default_factory=samples.result)
    is_unchanged: bool = False
    still_runs: bool = False
    status: TransferStatus | None = None
    early_end: WatchEnd | None = None
    full: list[TooManyFleets] = field(default_factory=list)
    regions: Mapping[str, str] | None = None
    provisioner_name: str = "local"
    report: VerifyReport | None = None
    place_manifest: Any = None
    swept: SweepReport = field(default_factory=lambda: SweepReport((), (), dry_run=False))

    @property
    def provisioner(self) -> SimpleNamespace:
        found = {self.identity.fleet_key(): self.found}
        return SimpleNamespace(name=self.provisioner_name, describe=found.__getitem__)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    def of(self, verb: str) -> list[Any]:
        """The arguments of its calls."""
        return [what for each, what in self.calls if each == verb]

    def keys(self, verb: str) -> list[str]:
        """The fleet of each of its calls."""
        fleets = [what[0] if isinstance(what, tuple) else what for what in self.of(verb)]
        return [fleet.key if isinstance(fleet, Fleet) else fleet for fleet in fleets]

    def fail(self, verb: str, *errors: BaseException) -> None:
        self.errors[verb] = list(errors)

    def job_run(self, job: TransferJob) -> Any:
        """Its steps are calls of this client."""
        steps = ("check", "plan", "measured", "has_nothing_to_copy", "unchanged", "run", "begin")
        return SimpleNamespace(
            **{verb: partial(getattr(self, verb), job) for verb in steps if hasattr(self, verb)}
        )

    def check(self, job: TransferJob) -> None:
        self._note("check", job)

    def check_place(self, location: Location) -> None:
        self._note("check", location)

    def plan(self, job: TransferJob, **_: Any) -> TransferPlan:
        self._note("plan", job)
        return PLAN

    def measured(self, job: TransferJob, **_: Any) -> tuple[TransferJob, tuple[str, ...]]:
        self._note("measured", job)
        return replace(job, volume_gb=1.0, objects=1), ()

    def plan_together(self, jobs: Sequence[TransferJob]) -> TransferPlan:
        self._note("plan_together", list(jobs))
        return PLAN

    def source_version(self, location: Location, **arguments: Any) -> SourceVersion:
        self._note("source_version", (location, arguments))
        return SourceVersion("ab" * 32, 3, 1000)

    def manifest(self, location: Location, *, manifest_at: str = "auto") -> Any:
        self._note("manifest", location)
        if self.place_manifest is None:
            raise NotFound(f"{location.url} has no manifest")
        return self.place_manifest

    def has_nothing_to_copy(self, job: TransferJob, **_: Any) -> bool:
        return self.is_unchanged

    def provision(
        self, plan: TransferPlan, *, job: TransferJob | None = None, on_full: Any = None
    ) -> Fleet:
        assert plan == (PLAN.without_work() if self.is_unchanged else PLAN)
        self._await_room(on_full)
        self._note("provision", (self.identity.fleet_key(), job))
        self.meanwhile()
        return self._fleet()

    def require_room(self) -> None:
        self._note("require_room", None)
        if self.full:
            raise self.full.pop(0)

    def _await_room(self, on_full: Any) -> None:
        wait = FleetWait()
        while self.full:
            on_full(self.full.pop(0), wait)
            wait = wait.after(30.0)

    def transfer(
        self,
        job: TransferJob,
        fleet: Fleet,
        *,
        on_submitted: Any,
        on_status: Any,
        manifest: Any,
        **_: Any,
    ) -> TransferResult:
        if self.status is not None:
            on_status(self.status)
        where = replace(fleet, key=self.moved_to or fleet.key)
        on_submitted(where, SubmittedTransfer(samples.KEY, 1, NODE, self.joined))
        self._note("transfer", (fleet.key, job, manifest))
        return self._result(job)

    def run(
        self,
        job: TransferJob,
        plan: TransferPlan | None = None,
        *,
        manifest: Any,
        on_fleet: Any = lambda _: None,
        on_full: Any = None,
        on_status: Any = None,
        **_: Any,
    ) -> TransferResult:
        self._await_room(on_full)
        self._fail("provision")
        if self.result.used_gateways:
            on_fleet(self._fleet())
        if self.status is not None:
            on_status(self.status)
        self._note("run", (job, manifest))
        return self._result(job)

    def run_to_all(
        self,
        job: TransferJob,
        further: Sequence[Location],
        *,
        manifest: str | None = None,
        on_fleet: Any = lambda _: None,
        on_submitted: Any = lambda *_: None,
        on_full: Any = None,
    ) -> dict[str, TransferResult]:
        jobs = {one.url: replace(job, destination=one) for one in (job.destination, *further)}
        FanOut(cast("Any", None), list(jobs.values()), RunOptions(manifest=manifest))
        self._await_room(on_full)
        fleet = self._fleet()
        regions = dict.fromkeys(jobs, DST) if self.regions is None else self.regions
        if regions:
            on_fleet(fleet)
        for url, region in regions.items():
            own = replace(fleet, plan=replace(PLAN, dst=region))
            on_submitted(own, SubmittedTransfer(self.key_of(url), 1, NODE, self.joined))
        self._note("run_to_all", (job, list(further)))
        return {url: self.result_to(url, self._result(one)) for url, one in jobs.items()}

    def key_of(self, url: str) -> str:
        """Key of the transfer to one of several destinations."""
        return f"to {url}"

    def result_to(self, url: str, result: TransferResult) -> TransferResult:
        return replace(result, transfer_key=self.key_of(url))

    def submit(self, job: TransferJob, fleet: Fleet) -> SubmittedTransfer:
        self._note("submit", fleet)
        return SubmittedTransfer(samples.KEY, 1, NODE, self.joined)

    def begin(
        self,
        job: TransferJob,
        fleet: Fleet | None,
        *,
        on_submitted: Any,
        on_full: Any = None,
        **_: Any,
    ) -> TransferResult | WatchedTransfer:
        self._await_room(on_full)
        self._note("begin", (fleet and fleet.key, job))
        if self.is_unchanged:
            return self._result(job)
        submitted = SubmittedTransfer(samples.KEY, 1, NODE, self.joined)
        used = fleet or self._fleet()
        on_submitted(used, submitted)
        return WatchedTransfer(job, used, submitted, owns_fleet=fleet is None)

    def watch(self, watched: WatchedTransfer, *, on_status: Any = None) -> Any:
        def follow(for_s: float) -> WatchEnd | None:
            self._note("follow", for_s)
            if self.status is not None:
                on_status(self.status)
            self.meanwhile()
            return self.early_end

        return SimpleNamespace(
            follow=follow,
            poll=lambda: None if self.still_runs else "silent",
            has_answered=self.still_runs,
        )

    def finish(self, watched: WatchedTransfer, **_: Any) -> TransferResult:
        self._note("finish", watched)
        return self._result(watched.job)

    def cancel(self, fleet: Fleet, submitted: SubmittedTransfer) -> None:
        self._note("cancel", (fleet.key, submitted.transfer_key))

    def teardown(self, fleet: Fleet | str) -> TeardownReport:
        self._note("teardown", fleet)
        self.meanwhile()
        return TeardownReport((NODE,), {NODE: LOG})

    def teardown_after_error(self, fleet: Fleet) -> None:
        self.teardown(fleet)

    def sweep(self, **arguments: Any) -> SweepReport:
        self._note("sweep", arguments)
        return self.swept

    def verify(self, job: TransferJob, **arguments: Any) -> VerifyReport:
        self._note("verify", (job, arguments))
        assert self.report is not None
        return self.report

    def _note(self, verb: str, what: Any) -> None:
        self.calls.append((verb, what))
        self._fail(verb)

    def _fail(self, verb: str) -> None:
        if self.errors.get(verb):
            raise self.errors[verb].pop(0)

    def _result(self, job: TransferJob) -> TransferResult:
        self.meanwhile()
        return replace(self.result, source=job.source.url, destination=job.destination.url)

    def _fleet(self) -> Fleet:
        gateway = GatewayHandle(NODE, DST, ("127.0.0.1", 1), ("127.0.0.1", 2), "ff")
        return Fleet(
            self.identity.fleet_key(), 0, self.identity.deployment, "local", PLAN, (gateway,), (),
            "here/1", 1.5, 2e9,
        )  # fmt: skip
