"""The client, with provisioner and gateways made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tests.provision.fleet.replanning import FAST
from tests.transfer.samples import JOB as BARE_JOB, PLAN, A, B, fleet_of, status

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.dialing import Dial, directly
from skyplane_gateway.journal.document import Journal, encode_journal
from skyplane_gateway.stores import ListedRows
from skyplane_orchestration import planner
from skyplane_orchestration.client import Client, FleetTimes
from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudUnavailable,
    ConfigurationInvalid,
    FleetLost,
    ForeignHost,
    GatewayDraining,
    GatewayUnreachable,
    LaunchRefused,
    NotFound,
    PlanInfeasible,
    ProvisionFailed,
    QuotaExceeded,
    SkyplaneError,
    Stopped,
    StoreUnavailable,
    TeardownIncomplete,
    TooManyDeletes,
    TooManyFleets,
    TransferFailed,
)
from skyplane_orchestration.model.fleet import Fleet, FleetInstance
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT, RunIdentity
from skyplane_orchestration.model.job import (
    MaximizeThroughput,
    MinimizeCost,
    Policy,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.in_process.small_jobs import (
    SmallJobsProvisioner,
    is_small_on_this_machine,
)
from skyplane_orchestration.provision.local.run_directory import RunRoot
from skyplane_orchestration.provision.provisioner import (
    Finding,
    FleetSpec,
    TeardownReport,
)
from skyplane_orchestration.recovery.failover_decisions import SILENT_POLLS, FleetView, Submit
from skyplane_orchestration.security.authority import FleetSecret
from skyplane_orchestration.transfer import (
    deletes,
    finalize,
    fleets,
    job_run,
    planning,
    transfer_run,
)
from skyplane_orchestration.transfer.client_context import StopAt
from skyplane_orchestration.transfer.first_requests import FirstRequests
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer, TransferRequest
from skyplane_orchestration.transfer.fleet_slot_wait import FleetWait
from skyplane_orchestration.transfer.fleets import Fleets
from skyplane_orchestration.transfer.job_run import transfer_key_of
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

JOB = replace(BARE_JOB, volume_gb=10.0)
FAILURE = {"code": "store-error", "message": "lost"}


@dataclass
class Script:
    """What gateways and provisioner answer, and what was asked of them."""

    done: list[Any] = field(default_factory=list)
    statuses: list[Any] = field(default_factory=lambda: [status("succeeded")])
    submits: list[SkyplaneError] = field(default_factory=list)
    errors: dict[str, BaseException] = field(default_factory=dict)
    slept: list[float] = field(default_factory=list)
    found: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ("b",)
    tails: dict[str, str] = field(default_factory=lambda: {"a": "from the gateway"})
    recorded: Fleet | None = None
    keys: list[tuple[str, int]] = field(default_factory=list)
    listed: list[ListedRows | None] = field(default_factory=list)
    followers: list[int] = field(default_factory=list)
    is_in_use: bool = False
    specs: list[FleetSpec] = field(default_factory=list)
    refusals: list[LaunchRefused] = field(default_factory=list)
    quotas: tuple[RegionQuota, ...] = ()
    silent: Sequence[str] = ()
    provision_s: dict[str, float] = field(default_factory=dict)
    living: tuple[str, ...] = ()
    full_looks: int = 0

    def do(self, what: str, *more: Any) -> None:
        self.done.append((what, *more) if more else what)
        if what in self.errors:
            raise self.errors[what]

    @property
    def names(self) -> list[str]:
        return [row if isinstance(row, str) else row[0] for row in self.done]


class FakeProvisioner:
    name = "fake"

    def __init__(self, script: Script) -> None:
        self.script = script

    def ensure(self, spec: FleetSpec, authority: Any) -> Fleet:
        self.script.specs.append(spec)
        self.script.do("ensure")
        if self.script.full_looks:
            self.script.full_looks -= 1
            raise TooManyFleets.of(spec.deployment, 1, ("aa",))
        if self.script.refusals:
            raise self.script.refusals.pop(0)
        return fleet_of(
            "ab",
            plan=spec.plan,
            key=spec.key,
            generation=spec.generation,
            deployment=spec.deployment,
        )

    def destroy(self, key: str) -> tuple[str, ...]:
        self.script.do("destroy")
        return self.script.stopped

    def dial_to(self, fleet_key: str, node: str) -> Dial:
        return directly

    def describe(self, fleet_key: str) -> tuple[str, ...]:
        return self.script.found

    def recorded(self, fleet_key: str) -> Fleet | None:
        return self.script.recorded

    def log_tails(self, key: str, max_bytes: int = 65536) -> dict[str, str]:
        return {"a": "from the file", "b": "from the file"}

    def check_host(self, fleet: Fleet) -> None:
        if fleet.host != "h/b":
            raise ForeignHost("another machine")

    def sweep(self, deployment: str, **more: Any) -> SweepReport:
        self.script.do("sweep", deployment, more)
        return SweepReport((), self.script.living, more["dry_run"])

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        silent = tuple(region for region in self.script.silent if region in regions)
        if silent:
            error = CloudUnavailable("no answer")
            error.regions = silent
            raise error
        return tuple(quota for quota in self.script.quotas if quota.region in regions)

    has_internal_addresses = True

    @property
    def provision_s(self) -> dict[str, float]:
        return self.script.provision_s

    def runs_on_this_machine(self, plan: TransferPlan) -> bool:
        return True

    def store_identity(self, region: str) -> str:
        return ""

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return (Finding("fake", True, "all is well"),)


class FakeControl:
    """`FleetControl` by the script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def inspect(self, key: str) -> FleetView:
        return FleetView(("a",), ("b",), None, None, 1)

    def take_over(self, request: TransferRequest, order: Submit) -> SubmittedTransfer:
        self.script.do("take_over")
        tenure = order.tenure
        return SubmittedTransfer(request.transfer_key, tenure.epoch, tenure.lead, joined=False)

    def submit(
        self,
        request: TransferRequest,
        *,
        least_epoch: int = 1,
        listed: ListedRows | None = None,
        asked: FirstRequests | None = None,
    ) -> SubmittedTransfer:
        self.script.keys.append((request.transfer_key, least_epoch))
        self.script.listed.append(listed)
        self.script.do("submit", request.job)
        if self.script.submits:
            raise self.script.submits.pop(0)
        return SubmittedTransfer(request.transfer_key, least_epoch, "a", joined=False)

    def status(self, submitted: SubmittedTransfer, *, wait_s: float = 0.0) -> TransferStatus:
        answer = self.script.statuses.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, TransferStatus)
        return answer

    def report_rows(self, submitted: SubmittedTransfer) -> Iterator[Any]:
        return iter(())

    def release(self, submitted: SubmittedTransfer, journals_in: str | None = None) -> bool:
        self.script.do("release")
        return True

    def followers(self, submitted: SubmittedTransfer) -> int:
        return self.script.followers.pop(0) if self.script.followers else 0

    def drain_if_idle(self) -> bool:
        return not self.script.is_in_use

    def stop(self, submitted: SubmittedTransfer, reason: str) -> None:
        self.script.do("stop", reason)

    def cancel_unended(self) -> dict[str, str]:
        self.script.do("cancel")
        return self.script.tails


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()
    monkeypatch.setattr(fleets, "FleetControl", lambda sessions, sealing_key_of: FakeControl(made))
    monkeypatch.setattr(FirstRequests, "check_destination", lambda _: None)
    return made


def client_of(script: Script, wall_s: float = 0.0, **more: Any) -> Client:
    settings: dict[str, Any] = {
        "identity": RunIdentity("test", "dag", "run"),
        "provisioner": FakeProvisioner(script),
        "secret": FleetSecret(b"a secret that is long enough, yes"),
        "poll_s": 1.5,
        "clock": Clock(lambda: 0.0, lambda: wall_s, script.slept.append),
    }
    return Client(**{**settings, **more})


@pytest.fixture
def client(script: Script) -> Client:
    return client_of(script)


def test_one_call_does_it_all_in_order(client: Client, script: Script) -> None:
    script.statuses = [status(), status(), status("succeeded")]
    seen: list[TransferStatus] = []
    built: list[Fleet] = []
    result = client.run(JOB, plan=PLAN, on_status=seen.append, on_fleet=built.append)
    assert result.succeeded
    assert [row.state for row in seen] == ["running", "running", "succeeded"]
    assert script.slept == []
    assert script.names == ["ensure", "submit", "release", "cancel", "destroy"]
    assert built[0].key == client.identity.fleet_key()


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_other_followers_fetch_the_end_before_the_fleet_goes_down(
    client: Client, script: Script, state: str
) -> None:
    script.statuses = [status(state, error=FAILURE)]
    script.followers = [2, 1, 0]
    with suppress(TransferFailed):
        client.run(JOB, plan=PLAN)
    assert script.slept == [0.25, 0.25]
    assert script.names[-2:] == ["cancel", "destroy"]


def test_followers_that_stay_do_not_keep_the_fleet_up(client: Client, script: Script) -> None:
    script.followers = [1] * 1000
    client.run(JOB, plan=PLAN)
    assert sum(script.slept) == pytest.approx(10.0)
    assert script.names[-1] == "destroy"


def test_a_draining_fleet_is_waited_for_and_built_anew(client: Client, script: Script) -> None:
    """Gateways that start before its teardown would be torn down with it."""
    lost = FleetLost("it takes no new transfer")
    lost.__cause__ = GatewayDraining("it takes no new transfer")
    script.submits = [lost]
    script.found = ("a",)
    assert client.run(JOB, plan=PLAN).succeeded
    assert sum(script.slept) == pytest.approx(10.0)
    assert script.names.count("ensure") == 2


def test_a_fleet_that_another_call_uses_stays_up(client: Client, script: Script) -> None:
    script.is_in_use = True
    assert client.run(JOB, plan=PLAN).succeeded
    assert "destroy" not in script.names


@pytest.mark.parametrize("owns_fleet", [True, False])
def test_finish_ends_a_fleet_that_the_watched_transfer_owns(
    client: Client, script: Script, owns_fleet: bool
) -> None:
    assert client.finish(watched_by(client, owns_fleet=owns_fleet)).succeeded
    assert ("destroy" in script.names) == owns_fleet


@pytest.mark.parametrize("owns_fleet", [True, False])
def test_a_lead_that_cannot_be_stopped_in_time_does_not_keep_such_a_fleet_up(
    script: Script, owns_fleet: bool
) -> None:
    client = client_of(script, wall_s=10.0)
    script.statuses = [status(), *[GatewayUnreachable("no answer")] * SILENT_POLLS]
    script.errors["stop"] = GatewayUnreachable("no answer")
    watched = replace(watched_by(client, owns_fleet=owns_fleet), deadline_unix_s=5.0)
    with pytest.raises(TransferFailed, match="could not be told to stop"):
        client.finish(watched)
    assert ("destroy" in script.names) == owns_fleet


def watched_by(client: Client, *, owns_fleet: bool) -> WatchedTransfer:
    submitted = SubmittedTransfer(transfer_key_of(client.identity, JOB), 1, "a", joined=False)
    fleet = fleet_of("ab", key=client.identity.fleet_key())
    return WatchedTransfer(JOB, fleet, submitted, owns_fleet=owns_fleet)


def test_an_interruption_while_others_fetch_the_end_takes_the_fleet_down(script: Script) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    script.followers = [1]
    client = client_of(script, clock=Clock(sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        client.run(JOB, plan=PLAN)
    assert script.names[-1] == "destroy"


@pytest.fixture
def same(tmp_path: Path) -> TransferJob:
    """A job that has nothing to do."""
    for end in ("in", "out"):
        (tmp_path / end).mkdir()
        (tmp_path / end / "a").write_bytes(b"the same")
    ends = (Location(f"{tmp_path}/in/", A), Location(f"{tmp_path}/out/", A))
    return TransferJob(*ends, conflict="skip", volume_gb=1.0)


def test_a_job_that_has_nothing_to_do_builds_no_fleet(
    client: Client, script: Script, same: TransferJob
) -> None:
    built: list[Fleet] = []
    result = client.run(same, on_fleet=built.append)
    assert (result.succeeded, result.skipped, result.used_gateways) == (True, 1, False)
    assert result.transfer_key == transfer_key_of(client.identity, same)
    assert (script.names, built) == ([], [])


def test_a_plan_a_manifest_a_difference_and_a_fleet_that_is_up_need_gateways(
    client: Client,
    script: Script,
    same: TransferJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = replace(PLAN, src=A, dst=A)
    monkeypatch.setattr(planning, "plan_job", lambda *_, **__: plan)
    script.statuses = [status("succeeded") for _ in range(4)]
    script.found = ("a",)
    assert client.run(same).used_gateways, "another process may run it"
    script.found = ()
    assert client.run(same, plan=plan).used_gateways
    assert client.run(same, manifest=f"{tmp_path}/list.parquet").used_gateways
    (tmp_path / "in" / "b").write_bytes(b"new")
    assert client.run(same).used_gateways
    assert script.names.count("ensure") == 4


def test_a_fleet_without_gateways_is_for_a_job_that_has_nothing_to_copy(
    client: Client,
    script: Script,
    same: TransferJob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = replace(PLAN, src=A, dst=A)
    monkeypatch.setattr(planning, "plan_job", lambda *_, **__: plan)
    assert client.job_run(same).has_nothing_to_copy()
    fleet = client.provision(plan.without_work())
    assert (fleet.key, fleet.gateways) == (client.identity.fleet_key(), ())
    assert not client.transfer(same, fleet).used_gateways
    assert script.names == []
    # What came since is copied, on gateways that the same call ends.
    (tmp_path / "in" / "b").write_bytes(b"new")
    assert not client.job_run(same).has_nothing_to_copy()
    script.statuses = [status("succeeded")]
    used: list[Fleet] = []
    result = client.transfer(same, fleet, on_submitted=lambda fleet, _: used.append(fleet))
    assert result.used_gateways
    assert [bool(one.gateways) for one in used] == [True]
    assert (script.names[0], script.names[-1]) == ("ensure", "destroy")
    # A killed call may have left gateways: they are found by the key.
    client.teardown(fleet)
    assert script.names[-1] == "destroy"


# -- the listing of the source


def names(listed: ListedRows | None) -> list[str]:
    return [] if listed is None else [Path(row.key).name for row in listed.rows]


def test_a_run_hands_over_what_it_has_listed(
    client: Client, script: Script, same: TransferJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path(same.source.url.removeprefix("file://")) / "b").write_bytes(b"new")
    monkeypatch.setattr(planning, "plan_job", lambda *_, **__: PLAN)
    client.run(same)
    (listed,) = script.listed
    assert names(listed) == ["a", "b"]
    assert listed is not None
    assert listed.is_complete, "the first page has both"


def test_only_the_steps_of_one_run_share_a_listing(
    client: Client, script: Script, same: TransferJob
) -> None:
    job = replace(same, volume_gb=None)
    client.run(job, plan=client.plan(job))
    script.statuses = [status("succeeded")]
    one_run = client.job_run(job)
    one_run.run(one_run.plan())
    assert [names(listed) for listed in script.listed] == [[], ["a"]]


def test_a_rebuilt_fleet_lists_again(client: Client, script: Script, same: TransferJob) -> None:
    one_run = client.job_run(replace(same, volume_gb=None))
    script.submits = [FleetLost("gone")]
    one_run.run(one_run.plan())
    assert [names(listed) for listed in script.listed] == [["a"], []]


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(1), RuntimeError("of the caller"), StoreUnavailable("503")],
)
@pytest.mark.parametrize("when", ["fleet", "poll"])
def test_the_fleet_goes_down_whatever_happens(
    error: BaseException, when: str, client: Client, script: Script
) -> None:
    def refuse(fleet: Fleet) -> None:
        raise error

    script.statuses = [error]
    with pytest.raises(type(error)):
        client.run(JOB, plan=PLAN, on_fleet=refuse if when == "fleet" else None)
    assert script.names[-2:] == ["cancel", "destroy"]


@pytest.mark.parametrize("has_failed", [False, True])
def test_an_interrupted_teardown_is_finished(
    has_failed: bool, client: Client, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_failed:
        script.statuses = [StoreUnavailable("503")]
    calls: list[str] = []
    teardown = Fleets.teardown

    def interrupted(fleets: Fleets, fleet: Fleet | str) -> TeardownReport:
        calls.append("teardown")
        if len(calls) == 1:
            raise KeyboardInterrupt
        return teardown(fleets, fleet)

    monkeypatch.setattr(Fleets, "teardown", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.run(JOB, plan=PLAN)
    assert script.names[-1] == "destroy"
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("error", "when", "is_cleared"),
    [
        (KeyboardInterrupt(), "running", True),
        (RuntimeError("of the caller"), "running", True),
        # The next run needs its journal.
        (KeyboardInterrupt(), "succeeded", False),
        # And a failed transfer can be resumed.
        (StoreUnavailable("503"), "running", False),
    ],
)
def test_an_interrupted_transfer_is_removed_in_the_epoch_that_it_has_reached(
    error: BaseException,
    when: str,
    is_cleared: bool,
    client: Client,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    removed: list[tuple[Any, ...]] = []

    def remove(job: TransferJob, key: str, epoch: int, credentials: Any) -> tuple[str, ...]:
        removed.append((job, key, epoch))
        return ("a store that is not there",)

    monkeypatch.setattr(transfer_run, "remove_journals", remove)
    broken = status("failed", error={"code": "gateway-lost", "message": "all paths are down"})
    script.statuses = [broken, status(when, epoch=2)]
    if when == "running":
        script.statuses.append(error)
    else:
        script.errors["release"] = error
    with pytest.raises(type(error)):
        client.run(JOB, plan=PLAN)
    assert script.done[-1] == "destroy"
    assert removed == [(JOB, transfer_key_of(client.identity, JOB), 2)] * is_cleared


def test_a_teardown_that_fails_hides_nothing_and_is_not_hidden(
    client: Client, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script.errors["destroy"] = TeardownIncomplete("a gateway is still there")
    with pytest.raises(TeardownIncomplete):
        client.run(JOB, plan=PLAN)
    script.statuses = [status("failed", error=FAILURE)]
    with pytest.raises(TransferFailed, match="lost"):
        client.run(JOB, plan=PLAN)
    assert "a gateway is still there" in caplog.text


def test_no_fleet_no_teardown(client: Client, script: Script) -> None:
    script.errors["ensure"] = ProvisionFailed("no")
    with pytest.raises(ProvisionFailed):
        client.run(JOB, plan=PLAN)
    assert script.names == ["ensure"]


def test_a_lost_fleet_is_built_once_more_and_once_only(client: Client, script: Script) -> None:
    fleet = client.provision(PLAN, generation=3)
    told: list[Fleet] = []
    script.submits = [FleetLost("gone")]
    client.transfer(JOB, fleet, on_submitted=lambda where, _: told.append(where))
    assert [(spec.key, spec.generation) for spec in script.specs] == [(fleet.key, 3)] * 2
    assert [spec.must_exist for spec in script.specs] == [False, False]
    assert len(told) == 1
    script.submits = [FleetLost("gone"), FleetLost("gone again")]
    with pytest.raises(FleetLost, match="gone again"):
        client.transfer(JOB, fleet)


def test_a_fleet_that_breaks_during_a_transfer_must_exist_to_be_brought_up_again(
    client: Client, script: Script
) -> None:
    fleet = client.provision(PLAN)
    script.errors["ensure"] = FleetLost("it was torn down")
    script.statuses = [status("failed", error={"code": "gateway-lost", "message": "no path"})]
    with pytest.raises(TransferFailed, match="no path"):
        client.transfer(JOB, fleet)
    assert script.names[-2:] == ["ensure", "release"]
    assert script.specs[-1].must_exist


def test_a_manifest_that_cannot_be_written_builds_no_fleet(client: Client, script: Script) -> None:
    with pytest.raises(ConfigurationInvalid, match="stdout"):
        client.run(JOB, plan=PLAN, manifest="-")
    assert script.done == []


def test_a_move_is_checked_before_it_is_submitted(
    client: Client, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_run, "check_move", lambda *_: script.do("check"))
    monkeypatch.setattr(finalize, "remove_sources", lambda *_: script.do("remove"))
    assert client.run(replace(JOB, move=True), plan=PLAN).succeeded
    assert script.names[:5] == ["ensure", "check", "submit", "remove", "release"]


def test_deletes_are_checked_before_the_submit_and_only_once(
    client: Client, script: Script, same: TransferJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*_: Any) -> deletes.DeletePlan:
        script.do("check")
        return deletes.DeletePlan(0, 0)

    monkeypatch.setattr(deletes, "check_extra", check)
    job = replace(same, delete=True)
    plan = replace(PLAN, src=A, dst=A)
    script.statuses = [status("succeeded") for _ in range(2)]
    assert client.run(job, plan=plan).succeeded
    assert script.names[:3] == ["ensure", "check", "submit"]
    script.done.clear()
    one_run = client.job_run(job)
    one_run.check()
    assert one_run.run(plan).succeeded
    assert script.names[:3] == ["check", "ensure", "submit"]


def test_a_sync_with_nothing_to_copy_deletes_without_a_fleet(
    client: Client, script: Script, same: TransferJob, tmp_path: Path
) -> None:
    (tmp_path / "out/extra").write_bytes(b"x")
    with pytest.raises(TooManyDeletes, match="max_delete 0 allows 0"):
        client.run(replace(same, delete=True, max_delete="0"))
    assert (tmp_path / "out/extra").exists()
    result = client.run(replace(same, delete=True))
    assert (result.deleted, result.used_gateways, script.names) == (1, False, [])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


@pytest.mark.parametrize("begins", [False, True])
def test_a_pattern_that_protects_nothing_stops_before_a_byte(
    client: Client, script: Script, same: TransferJob, tmp_path: Path, begins: bool
) -> None:
    (tmp_path / "out/tmp").mkdir()
    (tmp_path / "out/tmp/stale").write_bytes(b"x")
    (tmp_path / "in/new").write_bytes(b"x")
    job = replace(same, delete=True, max_delete="100%", exclude=("tmp",))
    fleet = client.provision(replace(PLAN, src=A, dst=A))
    one_run = client.job_run(job)
    start = one_run.begin if begins else partial(client.transfer, job)
    for call in (one_run.check, one_run.preview_deletes, lambda: client.run(job)):
        with pytest.raises(
            ConfigurationInvalid, match="write 'tmp/\\*\\*', or set allow_unmatched"
        ):
            call()
    with pytest.raises(ConfigurationInvalid, match="would not spare 'tmp/stale'"):
        start(fleet)
    assert script.names == ["ensure"]
    (tmp_path / "in/new").unlink()
    with pytest.raises(TransferFailed, match="would not spare 'tmp/stale'") as caught:
        client.job_run(job).unchanged()
    assert caught.value.is_permanent
    assert (tmp_path / "out/tmp/stale").exists()
    result = client.run(replace(job, allow_unmatched_patterns=True))
    assert (result.deleted, len(result.warnings)) == (1, 1)


def test_regions_that_the_plan_found_are_used(client: Client, script: Script) -> None:
    fleet = client.provision(PLAN)
    bare = TransferJob(Location("s3://src/p/"), Location("s3://dst/q/", "aws:us-west-2"))
    client.submit(bare, fleet)
    _, job = script.done[-1]
    assert (job.source.region, job.destination.region) == (A, "aws:us-west-2")


# -- teardown and sweep


def test_teardown_prefers_the_logs_that_gateways_send(client: Client, script: Script) -> None:
    report = client.teardown(client.provision(PLAN))
    assert report.log_tails == {"a": "from the gateway", "b": "from the file"}
    # The first had ended when the provisioner looked.
    assert report.stopped == ("a", "b")


def test_teardown_by_key_cancels_on_the_recorded_fleet(client: Client, script: Script) -> None:
    client.teardown("ab" * 16)
    assert script.names == ["destroy"], "no gateway to ask"
    script.done.clear()
    script.recorded = client.provision(PLAN)
    report = client.teardown(script.recorded.key)
    assert script.names == ["ensure", "cancel", "destroy"]
    assert report.log_tails["a"] == "from the gateway"


def test_the_cost_of_instances_that_ended_by_themselves_is_not_known(
    client: Client, script: Script
) -> None:
    """A teardown that was cleared days later counted the time until then."""
    one = FleetInstance(f"{A}/0", A, "i-1", 0.0)
    fleet = replace(client.provision(PLAN), instances=(one,))
    assert client.teardown(fleet).instance_usd is not None
    script.stopped, script.tails = (), {}
    assert client.teardown(fleet).instance_usd is None


def test_a_fleet_elsewhere_is_refused(client: Client, script: Script) -> None:
    elsewhere = replace(client.provision(PLAN), host="other/b")
    for call in (client.teardown, lambda fleet: client.transfer(JOB, fleet)):
        with pytest.raises(ForeignHost):
            call(elsewhere)
    assert script.names == ["ensure"]


def test_leases_reach_the_provisioner(script: Script) -> None:
    client_of(script, times=FleetTimes(1.0, 2.0, 3.0)).provision(PLAN)
    (spec,) = script.specs
    assert spec.times == FleetTimes(1.0, 2.0, 3.0)
    assert spec.deployment == "test"


def test_only_a_new_fleet_is_limited(client: Client, script: Script) -> None:
    client = client_of(script, max_active_fleets=2)
    fleet = client.provision(PLAN)
    script.submits = [FleetLost("gone")]
    client.transfer(JOB, fleet)
    assert [spec.max_active_fleets for spec in script.specs] == [2, None]


def test_a_client_cannot_have_a_limit_of_no_fleets(script: Script) -> None:
    with pytest.raises(ConfigurationInvalid, match="max_active_fleets must be at least 1, not 0"):
        client_of(script, max_active_fleets=0)


def test_too_many_fleets_are_an_error_or_a_wait(client: Client, script: Script) -> None:
    script.full_looks = 1
    with pytest.raises(TooManyFleets):
        client.provision(PLAN)
    script.full_looks = 9
    waits: list[FleetWait] = []
    assert client.provision(PLAN, on_full=lambda _, wait: waits.append(wait)).gateways
    assert [wait.looks for wait in waits] == list(range(9))
    assert waits[-1].waited_s == pytest.approx(sum(script.slept[:-1]))


def test_all_ways_to_a_new_fleet_wait(client: Client, script: Script) -> None:
    empty = client.provision(PLAN.without_work())
    ways: list[Callable[..., Any]] = [
        partial(client.run, JOB), client.job_run(JOB).begin, partial(client.transfer, JOB, empty),
    ]  # fmt: skip
    for way in ways:
        script.full_looks, script.statuses = 1, [status("succeeded")]
        waits: list[FleetWait] = []
        way(on_full=lambda _, wait, waits=waits: waits.append(wait))
        assert len(waits) == 1


@pytest.mark.parametrize("way", ["run", "begin", "transfer"])
def test_one_call_looks_at_the_destination_before_it_plans(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"1")
    ends = Location(f"{tmp_path}/in/", A), Location("s3://missing/", B, "http://127.0.0.1:9")
    client = client_of(script)
    empty = client.provision(PLAN.without_work())
    monkeypatch.setattr(
        FirstRequests, "check_destination", Mock(side_effect=NotFound("no such bucket"))
    )
    monkeypatch.setattr(planning, "plan_job", Mock(side_effect=AssertionError("planned")))
    job = TransferJob(*ends)
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: client.run(job),
        "begin": client.job_run(job).begin,
        "transfer": lambda: client.transfer(job, empty),
    }
    with pytest.raises(NotFound, match="no such bucket"):
        calls[way]()
    assert script.names == []


def small_jobs_of(script: Script, tmp_path: Path, place: Any) -> Any:
    outside: Any = FakeProvisioner(script)
    root = RunRoot(tmp_path / "run")
    return SmallJobsProvisioner(outside, root, place, is_small=is_small_on_this_machine)


@pytest.mark.parametrize("place", ["outside", "auto"])
def test_fleets_are_counted_before_the_plan(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A plan for a deployment that is full lists the source, and is old when there is room."""
    provisioner = FakeProvisioner(script) if place == "outside" else None
    client = client_of(
        script,
        provisioner=provisioner or small_jobs_of(script, tmp_path, place),
        max_active_fleets=1,
    )
    monkeypatch.setattr(planner, "plan", Mock(side_effect=AssertionError("planned")))
    script.living = ("aa",)
    looks: list[FleetWait] = []

    def on_full(_: object, wait: FleetWait) -> None:
        looks.append(wait)
        if len(looks) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.run(JOB, on_full=on_full)
    assert [wait.looks for wait in looks] == [0, 1, 2]
    assert "ensure" not in script.names


def test_a_small_job_does_not_wait_for_a_fleet(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"1")
    client = client_of(
        script, provisioner=small_jobs_of(script, tmp_path, "auto"), max_active_fleets=1
    )
    monkeypatch.setattr(planner, "plan", Mock(side_effect=PlanInfeasible("planned")))
    script.living = ("aa",)
    job = TransferJob(Location(f"{tmp_path}/in/", A), Location(f"{tmp_path}/out/", A))
    with pytest.raises(PlanInfeasible):
        client.run(job, on_full=Mock(side_effect=AssertionError("waited")))


@pytest.mark.parametrize("way", ["run", "transfer", "finish"])
def test_a_client_stops_every_transfer_in_time_and_has_its_result(script: Script, way: str) -> None:
    client = client_of(script, wall_s=10.0, stop_at=StopAt(5.0, "the task ends"))
    script.statuses = [status(), status("failed", error=Stopped("the task ends").to_dict())]
    fleet = client.provision(PLAN)
    submitted = SubmittedTransfer(transfer_key_of(client.identity, JOB), 1, "a", joined=False)
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: client.run(JOB, plan=PLAN),
        "transfer": lambda: client.transfer(JOB, fleet),
        "finish": lambda: client.finish(WatchedTransfer(JOB, fleet, submitted)),
    }
    with pytest.raises(TransferFailed, match="the task ends") as failure:
        calls[way]()
    assert ("stop", "the task ends") in script.done
    assert failure.value.result is not None
    assert not failure.value.is_permanent


def test_a_look_without_a_start_says_whether_there_is_room(script: Script) -> None:
    client = client_of(script, max_active_fleets=2)
    own = client.identity.fleet_key()
    for living in ((), ("aa",), ("aa", own), ("aa", "bb", own)):
        script.living = living
        client.require_room()
    script.living = ("aa", "bb")
    with pytest.raises(TooManyFleets, match="which is 2, with the fleets aa, bb"):
        client.require_room()
    client_of(script).require_room()
    assert "ensure" not in script.names


def test_a_sweep_is_of_this_deployment(client: Client, script: Script) -> None:
    report = client.sweep(dry_run=True, older_than_s=60.0)
    ((verb, deployment, more),) = script.done
    assert (verb, deployment) == ("sweep", "test")
    assert more.pop("authority_of")("ab").fleet_key == "ab"
    assert more == {"dry_run": True, "older_than_s": 60.0}
    assert report.places == ()


def test_a_sweep_of_destinations_uses_the_wall_clock(script: Script, tmp_path: Path) -> None:
    journal = tmp_path / "out" / ".skyplane" / "jobs" / ("ab" * 16) / "0000000001"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(encode_journal(Journal("ab" * 16, 1, "r", 1)))
    written_s = journal.stat().st_mtime
    for wait_s, is_there in ((RESUME_TTL_S, True), (2 * RESUME_TTL_S, False)):
        client = client_of(script, wall_s=written_s + wait_s)
        client.sweep(destinations=[Location(f"file://{tmp_path}/")])
        assert journal.exists() == is_there


def test_a_sweep_that_cannot_begin_changes_nothing(client: Client, script: Script) -> None:
    with pytest.raises(ConfigurationInvalid):
        client.sweep(destinations=[Location("s3://bucket/x/", options={"colour": "red"})])
    assert script.done == []


# -- resume


def handle_of(client: Client, script: Script) -> str:
    fleet = client.provision(PLAN, generation=3)
    script.statuses = [status("failed", error=FAILURE)]
    with pytest.raises(TransferFailed) as caught:
        client.transfer(JOB, fleet)
    handle: str = caught.value.result.resume_handle  # type: ignore[attr-defined]
    return handle


def test_another_run_resumes_a_transfer_by_its_handle(client: Client, script: Script) -> None:
    handle = handle_of(client, script)
    identity = RunIdentity("test", "somebody", "else")
    other = client_of(script, wall_s=1000.0, identity=identity)
    script.statuses = [status("succeeded", epoch=2)]
    assert other.resume(handle, max_job_usd=7.0).resume_handle == ""
    jobs = [row[1] for row in script.done if row[0] == "submit"]
    assert [job.policy.max_job_usd for job in jobs] == [None, 7.0]
    assert script.keys == [
        (transfer_key_of(client.identity, JOB), 1),
        (transfer_key_of(client.identity, JOB), 2),
    ]
    assert len({(spec.key, spec.generation) for spec in script.specs}) == 1
    assert script.names[-2:] == ["cancel", "destroy"]


def test_a_fleet_that_is_up_stays_up_after_a_resume(client: Client, script: Script) -> None:
    handle = handle_of(client, script)
    script.found, script.statuses = ("a",), [status("succeeded")]
    client.resume(handle)
    assert "destroy" not in script.names
    # A fleet that the resume brought up goes down, after a failure as well.
    script.found = ()
    script.statuses = [status("failed", error=FAILURE)]
    with pytest.raises(TransferFailed):
        client.resume(handle)
    assert script.done[-1] == "destroy"


def test_an_expired_handle_builds_no_fleet(client: Client, script: Script) -> None:
    handle = handle_of(client, script)
    script.done.clear()
    with pytest.raises(ConfigurationInvalid, match="expired"):
        client_of(script, wall_s=86_400.0).resume(handle)
    assert script.done == []


# -- plans and keys


def test_without_an_objective_the_plan_has_the_rate_of_the_direct_path(client: Client) -> None:
    default = planner.default_objective(client.grid, A, B)
    assert isinstance(default, MinimizeCost)
    plan = client.plan(JOB)
    assert plan.throughput_gbps >= default.floor_gbps * (1 - 1e-6)
    assert (plan.src, plan.dst, plan.volume_gb) == (A, B, 10.0)


def test_a_plan_stays_within_the_quotas_of_the_provisioners_account(
    client: Client, script: Script
) -> None:
    """Also when nobody plans by `Client.plan`, and nothing is asked about excluded regions."""
    fast = replace(JOB, objective=MaximizeThroughput(max_usd_per_gb=0.2))
    assert client.plan(fast).instances[A].count > 1
    few = tuple(RegionQuota(tag, "my machines", instances=1) for tag in (A, B))
    others = (tag for tag in client.grid.tags if tag not in (A, B))
    script.quotas = (*few, *(RegionQuota(tag, "my machines", instances=0) for tag in others))
    plan = client.plan(fast)
    assert {tag: group.count for tag, group in plan.instances.items()} == {A: 1, B: 1}
    assert f"the plan has all instances that {A} may have: 1, by my machines" in plan.notes
    grid = client.grid_within_quotas((A, B), Policy(exclude_regions=("azure:*",)))
    assert {tag.partition(":")[0] for tag in grid.account} == {"aws", "gcp"}
    far = Location("s3://c/z/", "aws:ap-northeast-1")
    with pytest.raises(PlanInfeasible, match=r"no gateway can run in aws:ap-northeast-1, by my"):
        client.plan_to_all(fast, [far])


@pytest.mark.parametrize("name", ["exclude_regions", "allow_regions"])
def test_a_glob_that_matches_no_region_of_the_grid_is_refused(client: Client, name: str) -> None:
    """It would protect nothing, in whatever face the job is made."""
    globs: dict[str, Any] = {name: ("azure:*", "azrue:*")}
    job = replace(JOB, policy=Policy(**globs))
    for make in (client.plan, client.run, lambda one: client.plan_to_all(one, [JOB.destination])):
        with pytest.raises(ConfigurationInvalid, match=rf"{name} 'azrue:\*' matches"):
            make(job)
    with pytest.raises(ConfigurationInvalid, match="matches no region of the grid"):
        client.grid_within_quotas((A, B), job.policy)


def test_quotas_of_relays_do_not_limit_sources_and_sinks(client: Client, script: Script) -> None:
    """Spot relays have a quota of their own, which is zero in many accounts."""
    script.quotas = tuple(
        RegionQuota(tag, name, vcpus=vcpus, of_relays=of_relays)
        for tag in client.grid.tags
        for name, vcpus, of_relays in (("on demand", 64, False), ("spot", 0, True))
    )
    grid = client.grid_within_quotas((A, B))
    assert {tag: grid.vcpu_quota(tag) for tag in grid.tags} == {
        tag: 64 if tag in (A, B) else 0 for tag in grid.tags
    }


def test_without_internal_addresses_a_plan_within_google_cloud_is_as_slow_as_external_ones(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = "gcp:us-east1", "gcp:us-west1"
    place = tuple(map(client.grid.index_of, ends))
    inner = client.grid_within_quotas(ends).throughput_gbps[place]
    monkeypatch.setattr(FakeProvisioner, "has_internal_addresses", False)
    outer = client.grid_within_quotas(ends).throughput_gbps[place]
    assert outer < 7 < inner


def test_a_plan_does_without_relays_in_regions_that_do_not_answer(
    client: Client, script: Script
) -> None:
    script.silent = [tag for tag in client.grid.tags if tag.startswith("azure:")]
    grid = client.grid_within_quotas((A, B))
    assert {tag for tag in grid.tags if grid.instance_quota(tag) == 0} == set(script.silent)
    client.plan(JOB)
    script.silent = [B]
    with pytest.raises(CloudUnavailable, match="no answer"):
        client.plan(JOB)


def test_a_plan_counts_the_start_that_the_provisioner_knows(client: Client, script: Script) -> None:
    before = client.plan(JOB)
    script.provision_s = {"aws": 12.0, "gcp": 12.0, "azure": 12.0}
    assert (client.plan(JOB).provision_s, before.provision_s) == (12, 75)


# -- another plan, where a cloud has no room


def refused(plan: TransferPlan, region: str, kind: type[LaunchRefused]) -> LaunchRefused:
    error = kind("the cloud refuses", quota="L-7" if kind is QuotaExceeded else "")
    error.region, error.instance_type = region, plan.instances[region].type
    return error


def test_a_region_whose_quota_is_used_up_is_left_out(client: Client, script: Script) -> None:
    """Its price, rate and volume hold as before, and the result says what happened."""
    plan = client.plan(FAST)
    relay = plan.relays[0]
    script.refusals = [refused(plan, relay, QuotaExceeded)]
    result = client.run(FAST, plan=plan)
    now = script.specs[-1].plan
    assert [spec.plan for spec in script.specs] == [plan, now]
    assert relay not in now.instances
    assert now.throughput_gbps >= 4.2 * (1 - 1e-6)
    assert (now.objective, now.volume_gb, now.objects) == (plan.objective, 10.0, 5)
    assert result.planned_gbps == now.throughput_gbps
    assert result.warnings[0].startswith(f"planned again, because {relay} gave no ")
    assert result.warnings[0].endswith("a quota is used up; ask aws for more of: L-7")


def test_without_capacity_for_a_type_the_next_type_is_taken(client: Client, script: Script) -> None:
    """Also at an end, which no other region can replace. Two refusals add up."""
    plan = client.plan(JOB)
    script.refusals = [refused(plan, A, CapacityUnavailable)]
    first = client.provision(plan, job=JOB).plan
    assert first.instances[A].type != plan.instances[A].type
    script.refusals = [refused(one, A, CapacityUnavailable) for one in (plan, first)]
    second = client.provision(plan, job=JOB).plan
    assert len({one.instances[A].type for one in (plan, first, second)}) == 3
    assert [one.instance_type for one in second.refused] == [
        plan.instances[A].type,
        first.instances[A].type,
    ]


def test_a_quota_of_one_family_leaves_the_others(client: Client, script: Script) -> None:
    """At an end, too, which no other region can replace."""
    plan = client.plan(JOB)
    error = refused(plan, A, QuotaExceeded)
    error.series = error.instance_type
    script.refusals = [error]
    now = client.provision(plan, job=JOB).plan
    assert now.instances[A].type != plan.instances[A].type
    assert now.refused[0].warning.endswith("a quota is used up; ask aws for more of: L-7")


def test_instances_that_a_region_gave_stay_in_the_plan(client: Client, script: Script) -> None:
    fast = replace(JOB, objective=MaximizeThroughput(max_usd_per_gb=0.2))
    plan = client.plan(fast)
    assert plan.instances[A].count > 2
    error = refused(plan, A, QuotaExceeded)
    error.launched = 2
    script.refusals = [error]
    now = client.provision(plan, job=fast).plan
    assert now.instances[A].count == 2
    assert now.throughput_gbps < plan.throughput_gbps


def test_the_refusal_is_the_error_if_no_plan_holds_the_objective(
    client: Client, script: Script
) -> None:
    plan = client.plan(JOB)
    script.refusals = [refused(plan, A, QuotaExceeded)]
    with pytest.raises(QuotaExceeded, match=f"refuses; no other plan .*can run in {A}, by L-7"):
        client.run(JOB, plan=plan)
    assert script.names == ["ensure"]


def test_a_policy_or_a_plan_without_a_job_keeps_the_plan(client: Client, script: Script) -> None:
    plan = client.plan(JOB)
    keeps = replace(JOB, policy=Policy(on_no_capacity="fail"))
    script.refusals = [refused(plan, A, CapacityUnavailable)]
    with pytest.raises(CapacityUnavailable, match=r"refuses$"):
        client.run(keeps, plan=plan)
    script.refusals = [refused(plan, A, CapacityUnavailable)]
    with pytest.raises(CapacityUnavailable, match="without its job, so it cannot be made again"):
        client.provision(plan)
    assert script.names == ["ensure", "ensure"]


def test_a_transfer_never_changes_the_plan_of_its_fleet(client: Client, script: Script) -> None:
    """Its job may lack limits and allowed regions that the job of the plan had."""
    plan = client.plan(JOB)
    fleet = client.provision(plan, job=JOB)
    script.submits = [FleetLost("gone")]
    script.refusals = [refused(plan, A, CapacityUnavailable)]
    with pytest.raises(CapacityUnavailable, match=r"refuses$"):
        client.transfer(JOB, fleet)
    script.refusals, handle = [], handle_of(client, script)
    script.refusals = [refused(plan, A, CapacityUnavailable)]
    with pytest.raises(CapacityUnavailable, match=r"refuses$"):
        client.resume(handle)


def test_a_plan_to_several_places_is_a_document_like_others(client: Client) -> None:
    far = Location("s3://c/z/", "aws:ap-northeast-1")
    job = replace(JOB, objective=MinimizeCost(2.0), objects=5)
    plan = client.plan_to_all(job, [far])
    assert (plan.src, plan.destinations, plan.volume_gb) == (A, (B, far.region), 10.0)
    assert plan.cost.request_usd is not None
    assert TransferPlan.from_dict(plan.to_dict()) == plan
    with pytest.raises(ConfigurationInvalid, match="more than once"):
        client.plan_to_all(job, [Location("s3://d/", B)])


def test_a_client_without_an_identity_is_a_run_of_its_own() -> None:
    assert Client().identity.fleet_key() != Client().identity.fleet_key()


@pytest.mark.parametrize("way", ["run", "begin", "transfer", "finish", "resume"])
def test_every_way_refuses_a_manifest_that_it_would_not_write(
    client: Client, script: Script, way: str
) -> None:
    """Before anything else."""
    fleet, one_run = fleet_of("ab"), client.job_run(JOB)
    calls: dict[str, Callable[..., Any]] = {
        "run": partial(client.run, JOB),
        "begin": one_run.begin,
        "transfer": partial(client.transfer, JOB, fleet),
        "finish": partial(client.finish, watched_by(client, owns_fleet=True)),
        "resume": partial(client.resume, "no handle"),
    }
    with pytest.raises(ConfigurationInvalid, match=r"m\.json' cannot be written as \.json"):
        calls[way](manifest="s3://b/m.json")
    assert script.done == []
