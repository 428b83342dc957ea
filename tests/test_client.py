"""The client's own decisions, with everything behind it made up."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.journal.document import Journal, encode_journal
from skyplane_orchestration import client as client_module
from skyplane_orchestration.client import Client, FleetTimes
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    FleetLost,
    ForeignHost,
    GatewayDraining,
    GatewayUnreachable,
    ProvisionFailed,
    SkyplaneError,
    StoreUnavailable,
    TeardownIncomplete,
    TransferFailed,
    UnknownTransfer,
)
from skyplane_orchestration.model.fleet import Fleet, GatewayHandle
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.base import FleetSpec, FoundGateway
from skyplane_orchestration.recovery.failover import FleetView, Submit, Tenure
from skyplane_orchestration.security.authority import FleetSecret
from skyplane_orchestration.transfer.control import SubmittedTransfer

A, B = "aws:us-east-1", "aws:eu-west-3"
JOB = TransferJob(Location("s3://src/p/", A), Location("s3://dst/q/", B), volume_gb=10.0)
PLAN = TransferPlan(
    A,
    B,
    {},
    1.0,
    None,
    None,
    0.0,
    PlanCost(None, None, None, None, 0.0),
    {A: InstanceGroup("process", 1), B: InstanceGroup("process", 1)},
    (),
    (PlanPath((A, B), 1.0),),
    (),
    SolverReport("optimal", 0.0, 0.0, 0.0),
    GridReference("test", "2024-01-01", "measured"),
)


def status(state: str = "running", **changes: Any) -> TransferStatus:
    document: dict[str, Any] = {
        "transfer_key": "ab" * 16,
        "epoch": 1,
        "state": state,
        "listed": True,
        "bytes": 1,
        "copied": 1,
        "copied_bytes": 1,
        "skipped": 0,
        "failed": 0,
        "seconds": 1.0,
        "delivered_bytes": {},
        "error": None,
        "failures": [],
        "open_uploads": [],
    }
    document |= changes
    ended = document["copied"] + document["skipped"] + document["failed"]
    return TransferStatus.from_document({"objects": ended, **document})


@dataclass
class Script:
    """What happens, in order; what was done is written down."""

    done: list[Any] = field(default_factory=list)
    statuses: list[Any] = field(default_factory=lambda: [status("succeeded")])
    submits: list[Any] = field(default_factory=list)
    errors: dict[str, BaseException] = field(default_factory=dict)
    slept: list[float] = field(default_factory=list)
    views: list[FleetView] = field(default_factory=list)
    found: tuple[FoundGateway, ...] = ()
    recorded: Fleet | None = None
    keys: list[tuple[str, int]] = field(default_factory=list)
    followers: list[int] = field(default_factory=list)
    is_in_use: bool = False

    def do(self, what: str, *more: Any) -> None:
        self.done.append((what, *more) if more else what)
        if what in self.errors:
            raise self.errors[what]


class FakeProvisioner:
    name = "fake"

    def __init__(self, script: Script) -> None:
        self.script = script
        self.specs: list[FleetSpec] = []

    def ensure(self, spec: FleetSpec, authority: Any) -> Fleet:
        self.specs.append(spec)
        self.script.do("ensure")
        return Fleet(
            key=spec.key,
            generation=spec.generation,
            deployment=spec.deployment,
            provisioner="fake",
            plan=spec.plan,
            gateways=tuple(
                GatewayHandle(f"{r}/0", r, ("127.0.0.1", 1), ("127.0.0.1", 2), "") for r in (A, B)
            ),
            routes=({"number": 0, "nodes": [f"{A}/0", f"{B}/0"]},),
            host="h/b",
            provision_s=0.0,
            hard_end_unix_s=0.0,
        )

    def destroy(self, key: str) -> tuple[str, ...]:
        self.script.do("destroy")
        return (f"{B}/0",)

    def find(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        return self.script.found

    def recorded(self, fleet_key: str) -> Fleet | None:
        return self.script.recorded

    def log_tails(self, key: str, max_bytes: int = 65536) -> dict[str, str]:
        return {f"{A}/0": "from the file", f"{B}/0": "from the file"}

    def check_host(self, fleet: Fleet) -> None:
        if fleet.host != "h/b":
            raise ForeignHost("another machine")

    def sweep(self, deployment: str, **more: Any) -> SweepReport:
        self.script.do("sweep", deployment, more)
        return SweepReport((), (), more["dry_run"])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()

    class FakeSteering:
        def __init__(self, sessions: Any) -> None: ...

        def look(self, key: str) -> FleetView:
            made.do("look")
            return made.views.pop(0) if made.views else FleetView((), (), None, None, 1)

        def take_over(
            self, key: str, job: TransferJob, credentials: Any, order: Submit
        ) -> SubmittedTransfer:
            made.do("take_over", order)
            return SubmittedTransfer(key, order.tenure.epoch, order.tenure.lead, joined=False)

        def submit(
            self, key: str, job: TransferJob, credentials: Any, least_epoch: int = 1
        ) -> SubmittedTransfer:
            made.keys.append((key, least_epoch))
            made.do("submit", job)
            if made.submits:
                outcome = made.submits.pop(0)
                if isinstance(outcome, SkyplaneError):
                    raise outcome
            return SubmittedTransfer(key, least_epoch, f"{A}/0", joined=False)

        def status(self, submitted: SubmittedTransfer) -> TransferStatus:
            outcome = made.statuses.pop(0)
            if isinstance(outcome, BaseException):
                raise outcome
            assert isinstance(outcome, TransferStatus)
            return outcome

        def abort_left_uploads(self, *_: Any) -> tuple[str, ...]:
            made.do("abort")
            return ()

        def report_rows(self, submitted: SubmittedTransfer) -> Iterator[Any]:
            return iter(())

        def release(self, submitted: SubmittedTransfer) -> None:
            made.do("release")

        def release_success(self, *_: Any) -> tuple[str, ...]:
            made.do("release")
            return ()

        def cancel(self, submitted: SubmittedTransfer) -> None:
            made.do("cancel")

        def log_tails(self) -> dict[str, str]:
            return {f"{A}/0": "all is well", f"{B}/0": "Traceback (most recent call last): boom"}

        def followers(self, submitted: SubmittedTransfer) -> int:
            return made.followers.pop(0) if made.followers else 0

        def retire(self) -> bool:
            return not made.is_in_use

        def wind_up(self) -> dict[str, str]:
            made.do("wind_up")
            return {f"{A}/0": "from the gateway"}

    monkeypatch.setattr(client_module, "Steering", FakeSteering)
    return made


def client_of(script: Script, **more: Any) -> Client:
    return Client(
        identity=RunIdentity("test", "dag", "run"),
        provisioner=FakeProvisioner(script),
        secret=FleetSecret(b"a secret that is long enough, yes"),
        poll_s=1.5,
        sleep=script.slept.append,
        **more,
    )


@pytest.fixture
def client(script: Script) -> Client:
    return client_of(script)


def names(script: Script) -> list[str]:
    return [row if isinstance(row, str) else row[0] for row in script.done]


def test_one_call_does_it_all_in_order(client: Client, script: Script) -> None:
    script.statuses = [status(), status(), status("succeeded")]
    seen: list[TransferStatus] = []
    fleets: list[Fleet] = []
    result = client.run(JOB, plan=PLAN, on_status=seen.append, on_fleet=fleets.append)
    assert result.succeeded
    assert [row.state for row in seen] == ["running", "running", "succeeded"]
    assert script.slept == pytest.approx([0.05, 0.065])
    assert names(script) == [
        "ensure",
        "submit",
        "abort",
        "release",
        "wind_up",
        "destroy",
    ]
    assert fleets[0].key == client.identity.fleet_key()


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_others_hear_of_the_end_before_the_fleet_goes_down(
    client: Client, script: Script, state: str
) -> None:
    script.statuses = [status(state, error={"code": "store-error", "message": "lost"})]
    script.followers = [2, 1, 0]
    with suppress(TransferFailed):
        client.run(JOB, plan=PLAN)
    assert script.slept == [0.25, 0.25]
    assert names(script)[-2:] == ["wind_up", "destroy"]


def test_others_that_hear_nothing_do_not_keep_the_fleet_up(client: Client, script: Script) -> None:
    script.followers = [1] * 1000
    client.run(JOB, plan=PLAN)
    assert sum(script.slept) == pytest.approx(10.0)
    assert names(script)[-1] == "destroy"


def test_a_fleet_that_is_about_to_go_down_is_waited_for_and_built_anew(
    client: Client, script: Script
) -> None:
    """What is built before that would go down with it."""
    lost = FleetLost("it takes no new transfer")
    lost.__cause__ = GatewayDraining("it takes no new transfer")
    script.submits = [lost]
    script.found = (FoundGateway(node=f"{A}/0", details={"pid": "7"}),)
    assert client.run(JOB, plan=PLAN).succeeded
    assert sum(script.slept) == pytest.approx(10.0)
    assert names(script).count("ensure") == 2


def test_a_fleet_that_another_call_uses_is_left_to_it(client: Client, script: Script) -> None:
    script.is_in_use = True
    assert client.run(JOB, plan=PLAN).succeeded
    assert "destroy" not in names(script)


def test_an_interruption_while_others_hear_of_the_end_takes_the_fleet_down(
    script: Script,
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    client, script.followers = client_of(script), [1]
    client._sleep = interrupt
    with pytest.raises(KeyboardInterrupt):
        client.run(JOB, plan=PLAN)
    assert names(script)[-1] == "destroy"


@pytest.fixture
def same(tmp_path: Path) -> TransferJob:
    """A job that has nothing to do."""
    for end in ("in", "out"):
        (tmp_path / end).mkdir()
        (tmp_path / end / "a").write_bytes(b"the same")
    ends = (Location(f"{tmp_path}/in/", A), Location(f"{tmp_path}/out/", A))
    return TransferJob(*ends, conflict="skip", volume_gb=1.0)


def test_nothing_is_brought_up_where_there_is_nothing_to_do(
    client: Client, script: Script, same: TransferJob
) -> None:
    fleets: list[Fleet] = []
    result = client.run(same, on_fleet=fleets.append)
    assert (result.succeeded, result.skipped, result.used_gateways) == (True, 1, False)
    assert result.transfer_key == client.transfer_key(same)
    assert (names(script), fleets) == ([], [])


def test_gateways_come_up_for_a_plan_a_manifest_a_difference_and_a_fleet_that_is_up(
    client: Client, script: Script, same: TransferJob, tmp_path: Path
) -> None:
    """The lead lists every object; a fleet of this run means that somebody else runs it."""
    plan = replace(PLAN, src=A, dst=A)
    client.plan = lambda job, **_: plan  # type: ignore[method-assign]
    script.statuses = [status("succeeded") for _ in range(4)]
    script.found = (FoundGateway(f"{A}/0"),)
    assert client.run(same).used_gateways
    script.found = ()
    assert client.run(same, plan=plan).used_gateways
    assert client.run(same, manifest=f"{tmp_path}/list.parquet").used_gateways
    (tmp_path / "in" / "b").write_bytes(b"new")
    assert client.run(same).used_gateways
    assert names(script).count("ensure") == 4


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(1), RuntimeError("of the caller"), StoreUnavailable("503")],
)
def test_the_fleet_goes_down_whatever_happens(
    error: BaseException, client: Client, script: Script
) -> None:
    script.statuses = [error]
    with pytest.raises(type(error)):
        client.run(JOB, plan=PLAN)
    assert script.done[-1] == "destroy"


@pytest.mark.parametrize(
    ("error", "when", "is_cleared"),
    [
        (KeyboardInterrupt(), "running", True),
        (RuntimeError("of the caller"), "running", True),
        # Its journal tells the next run that all is there, and names what may be deleted.
        (KeyboardInterrupt(), "succeeded", False),
        # And a failure can be resumed.
        (StoreUnavailable("503"), "running", False),
    ],
)
def test_an_interrupted_transfer_is_cleared_up_wherever_it_runs_by_then(
    error: BaseException,
    when: str,
    is_cleared: bool,
    client: Client,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was taken down was the fleet of the beginning, and its gateways were gone."""
    cleared: list[tuple[Any, ...]] = []

    def clear(job: TransferJob, key: str, epoch: int, credentials: Any) -> tuple[str, ...]:
        cleared.append((job, key, epoch))
        return ("a store that is not there",)

    monkeypatch.setattr("skyplane_orchestration.transfer.finalize.clear_from_here", clear)
    broken = status("failed", error={"code": "gateway-lost", "message": "all paths are down"})
    script.statuses = [broken, status(when, epoch=2)]
    script.views = [BOTH]
    if when == "running":
        script.statuses.append(error)
    else:
        script.errors["abort"] = error
    with pytest.raises(type(error)):
        client.run(JOB, plan=PLAN)
    assert script.done[-1] == "destroy"
    assert cleared == [(JOB, client.transfer_key(JOB), 2)] * is_cleared


def test_a_caller_that_raises_when_told_of_the_fleet(client: Client, script: Script) -> None:
    def refuse(fleet: Fleet) -> None:
        raise RuntimeError("the database is down")

    with pytest.raises(RuntimeError):
        client.run(JOB, plan=PLAN, on_fleet=refuse)
    assert names(script) == ["ensure", "wind_up", "destroy"]


def test_a_teardown_that_fails_hides_nothing_and_is_not_hidden(
    client: Client, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script.errors["destroy"] = TeardownIncomplete("a gateway is still there")
    with pytest.raises(TeardownIncomplete):
        client.run(JOB, plan=PLAN)
    script.statuses = [status("failed", error={"code": "store-error", "message": "lost"})]
    with pytest.raises(TransferFailed, match="lost"):
        client.run(JOB, plan=PLAN)
    assert "a gateway is still there" in caplog.text


def test_no_fleet_no_teardown(client: Client, script: Script) -> None:
    script.errors["ensure"] = ProvisionFailed("no")
    with pytest.raises(ProvisionFailed):
        client.run(JOB, plan=PLAN)
    assert names(script) == ["ensure"]


def test_a_fleet_that_is_gone_is_built_once_more_and_once_only(
    client: Client, script: Script
) -> None:
    fleet = client.provision(PLAN, generation=3)
    told: list[Fleet] = []
    script.submits = [FleetLost("gone")]
    client.transfer(JOB, fleet, on_submitted=lambda where, _: told.append(where))
    provisioner = client.provisioner
    assert isinstance(provisioner, FakeProvisioner)
    assert [(spec.key, spec.generation) for spec in provisioner.specs] == [(fleet.key, 3)] * 2
    assert len(told) == 1
    script.submits = [FleetLost("gone"), FleetLost("gone again")]
    with pytest.raises(FleetLost, match="gone again"):
        client.transfer(JOB, fleet)


def test_a_lead_may_be_silent_for_a_while(client: Client, script: Script) -> None:
    silence = GatewayUnreachable("127.0.0.1:1 does not answer")
    script.statuses = [silence] * 4 + [status()] + [silence] * 4 + [status("succeeded")]
    assert client.run(JOB, plan=PLAN).succeeded


SILENCE = [GatewayUnreachable("it does not answer")] * 5
BOTH = FleetView((f"{A}/0",), (f"{B}/0",), None, None, 1)


def test_a_lead_that_stays_silent_in_a_fleet_that_was_torn_down(
    client: Client, script: Script
) -> None:
    fleet = client.provision(PLAN)
    script.errors["ensure"] = FleetLost("fleet x was torn down")
    script.statuses = [status(), *SILENCE]
    with pytest.raises(TransferFailed, match=f"{A}/0 is lost: it does not answer") as caught:
        client.transfer(JOB, fleet)
    assert not caught.value.is_permanent
    result: Any = caught.value.result
    assert (result.state, result.error_code, result.copied) == ("failed", "fleet-lost", 1)
    assert names(script)[-2:] == ["ensure", "release"], "uploads are kept for a resume"
    provisioner = client.provisioner
    assert isinstance(provisioner, FakeProvisioner)
    assert [spec.must_exist for spec in provisioner.specs] == [False, True]


def test_a_lead_that_stays_silent_is_replaced(client: Client, script: Script) -> None:
    fleet = client.provision(PLAN)
    script.views = [FleetView((f"{B}/0",), (f"{B}/0",), None, None, 1)]
    script.statuses = [status(), *SILENCE, status(epoch=2), status("succeeded", epoch=2)]
    told: list[SubmittedTransfer] = []
    result = client.transfer(JOB, fleet, on_submitted=lambda _, where: told.append(where))
    assert [(row.lead, row.epoch) for row in told] == [(f"{A}/0", 1), (f"{B}/0", 2)]
    assert result.succeeded
    assert f"{B}/0 leads in place of {A}/0, in epoch 2" in result.warnings[0]
    assert script.slept == pytest.approx([0.05, 1.5, 1.5, 1.5, 1.5, 1.5, 0.065])
    (order,) = [row[1] for row in script.done if row[0] == "take_over"]
    assert order == Submit(Tenure(f"{B}/0", 2), (f"{B}/0",), (f"{B}/0",))


def test_a_fleet_that_dies_in_mid_transfer_is_brought_up_again(
    client: Client, script: Script
) -> None:
    fleet = client.provision(PLAN)
    lost = status("failed", error={"code": "gateway-lost", "message": "the sink is gone"})
    script.views = [BOTH]
    script.statuses = [status(), lost, status("succeeded", epoch=2)]
    result = client.transfer(JOB, fleet)
    assert result.succeeded
    assert len(result.warnings) == 2
    assert names(script)[1:] == ["submit", "ensure", "look", "take_over", "abort", "release"]
    # It is done once; the next time the lead's own words are what is told.
    script.views = [BOTH]
    script.statuses = [lost, status(epoch=2), replace(lost, epoch=2)]
    with pytest.raises(TransferFailed, match="the sink is gone"):
        client.transfer(JOB, fleet)


def test_a_newer_epoch_of_somebody_else_is_followed(client: Client, script: Script) -> None:
    fleet = client.provision(PLAN)
    stale = status("failed", error={"code": "stale-epoch", "message": "epoch 1 is over"})
    newer = Tenure(f"{B}/0", 7)
    script.views = [FleetView((f"{A}/0",), (f"{B}/0",), newer, newer, 8)]
    script.statuses = [stale, status("succeeded", epoch=7)]
    assert client.transfer(JOB, fleet).epoch == 7
    assert "take_over" not in names(script)
    forgot = UnknownTransfer("it was restarted")
    script.views = [BOTH]
    script.statuses = [forgot, status("succeeded", epoch=2)]
    assert client.transfer(JOB, fleet).epoch == 2


@pytest.mark.parametrize(
    ("state", "error", "is_permanent"),
    [
        ("failed", {"code": "objects-failed", "message": "m", "is_permanent": False}, False),
        ("failed", {"code": "empty-source", "message": "m", "is_permanent": True}, True),
        ("cancelled", None, False),
    ],
)
def test_an_end_that_is_not_well_raises_with_the_result(
    state: str, error: Any, is_permanent: bool, client: Client, script: Script
) -> None:
    fleet = client.provision(PLAN)
    script.statuses = [status(state, error=error)]
    with pytest.raises(TransferFailed) as caught:
        client.transfer(JOB, fleet)
    assert caught.value.is_permanent is is_permanent
    assert caught.value.result.state == state  # type: ignore[attr-defined]
    assert script.done[-1] == "release"


def test_the_traceback_of_an_internal_error_is_in_the_callers_log(
    client: Client, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = client.provision(PLAN)
    row = {"source": "a", "destination": "a", "code": "internal-error", "reason": "r"}
    failures = [{**row, "attempts": 1}]
    error = {"code": "objects-failed", "message": ""}
    script.statuses = [status("failed", copied=0, failed=1, error=error, failures=failures)]
    assert client.transfer(replace(JOB, allow_failed=True), fleet).failed == 1
    assert "boom" in caplog.text
    assert "all is well" not in caplog.text


def test_what_may_fail_does_not_raise(client: Client, script: Script) -> None:
    fleet = client.provision(PLAN)
    script.statuses = [status("failed", failed=1, error={"code": "objects-failed", "message": ""})]
    assert client.transfer(replace(JOB, allow_failed=True), fleet).failed == 1


def test_a_manifest_that_cannot_be_written(
    client: Client, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skyplane_orchestration.storage import object_manifest

    def refuse(*_: Any) -> str:
        raise StoreUnavailable("the manifest's bucket is down")

    monkeypatch.setattr(object_manifest, "write_manifest", refuse)
    fleet = client.provision(PLAN)
    with pytest.raises(StoreUnavailable):
        client.transfer(JOB, fleet, manifest="s3://m/m.parquet")
    assert script.done[-1] == "release", "credentials must not stay at the gateways"
    # The failure of the transfer itself is what has to be told.
    script.statuses = [status("failed", error={"code": "store-error", "message": "lost"})]
    with pytest.raises(TransferFailed, match="lost") as caught:
        client.transfer(JOB, fleet, manifest="s3://m/m.parquet")
    assert caught.value.result.warnings == (  # type: ignore[attr-defined]
        "after the transfer: the manifest's bucket is down",
    )


def test_what_cannot_be_moved_builds_nothing(client: Client, script: Script) -> None:
    for job in (
        replace(JOB, source=Location("gs://b/")),
        replace(JOB, destination=Location("az://a/c/")),
    ):
        with pytest.raises(ConfigurationInvalid, match="not supported yet"):
            client.run(job, plan=PLAN)
    with pytest.raises(ConfigurationInvalid, match="stdout"):
        client.run(JOB, plan=PLAN, manifest="-")
    assert script.done == []


def test_teardown_prefers_what_the_gateways_say_themselves(client: Client, script: Script) -> None:
    fleet = client.provision(PLAN)
    report = client.teardown(fleet)
    assert report.log_tails == {f"{A}/0": "from the gateway", f"{B}/0": "from the file"}
    # The first ended when it was asked to and was gone when the provisioner looked.
    assert report.stopped == (f"{B}/0", f"{A}/0")  # by name


def test_teardown_by_key_winds_up_what_is_recorded(client: Client, script: Script) -> None:
    client.teardown("ab" * 16)
    assert names(script) == ["destroy"], "there is nobody to ask"
    script.done.clear()
    script.recorded = client.provision(PLAN)
    report = client.teardown(script.recorded.key)
    assert names(script) == ["ensure", "wind_up", "destroy"]
    assert report.log_tails[f"{A}/0"] == "from the gateway"


def test_a_fleet_elsewhere_is_refused(client: Client, script: Script) -> None:
    elsewhere = replace(client.provision(PLAN), host="other/b")
    for call in (client.teardown, lambda fleet: client.transfer(JOB, fleet)):
        with pytest.raises(ForeignHost):
            call(elsewhere)
    assert names(script) == ["ensure"]


def test_a_sweep_is_of_this_deployment(client: Client, script: Script) -> None:
    report = client.sweep(dry_run=True, older_than_s=60.0)
    assert script.done == [("sweep", "test", {"dry_run": True, "older_than_s": 60.0})]
    assert report.places == ()


def test_a_sweep_of_destinations_goes_by_the_wall_clock(script: Script, tmp_path: Path) -> None:
    journal = tmp_path / "out" / ".skyplane" / "jobs" / ("ab" * 16) / "0000000001"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(encode_journal(Journal("ab" * 16, 1, "r", 1)))
    written = journal.stat().st_mtime
    for wait_s, is_there in ((RESUME_TTL_S, True), (2 * RESUME_TTL_S, False)):
        client = client_of(script, now=lambda at=written + wait_s: at)
        client.sweep(destinations=[Location(f"file://{tmp_path}/")])
        assert journal.exists() == is_there


def test_a_sweep_that_cannot_begin_touches_nothing(client: Client, script: Script) -> None:
    with pytest.raises(ConfigurationInvalid):
        client.sweep(destinations=[Location("gs://bucket/x/")])
    assert script.done == []


def test_regions_that_the_plan_found_are_used(client: Client, script: Script) -> None:
    fleet = client.provision(PLAN)
    bare = TransferJob(Location("s3://src/p/"), Location("s3://dst/q/", "aws:us-west-2"))
    client.submit(bare, fleet)
    _, job = script.done[-1]
    assert (job.source.region, job.destination.region) == (A, "aws:us-west-2")


def test_a_transfers_key_is_that_of_every_retry(script: Script) -> None:
    one, other = client_of(script), client_of(script)
    assert one.transfer_key(JOB) == other.transfer_key(JOB)
    assert one.transfer_key(JOB) != one.transfer_key(replace(JOB, include=("*.csv",)))
    located = replace(JOB, source=JOB.source.at("aws:us-west-2"))
    assert one.transfer_key(JOB) == one.transfer_key(located)


def test_leases_reach_the_provisioner(script: Script) -> None:
    client = client_of(script, times=FleetTimes(1.0, 2.0, 3.0))
    client.provision(PLAN)
    provisioner = client.provisioner
    assert isinstance(provisioner, FakeProvisioner)
    (spec,) = provisioner.specs
    assert (spec.start_within_s, spec.lease_s, spec.hard_end_s) == (1.0, 2.0, 3.0)
    assert spec.deployment == "test"


def test_fleets_of_two_generations_are_two(client: Client) -> None:
    assert client.provision(PLAN).key != client.provision(PLAN, generation=1).key


# -- resume


def failed_result(client: Client, script: Script, **error: Any) -> Any:
    fleet = client.provision(PLAN, generation=3)
    script.statuses = [status("failed", error={"code": "objects-failed", "message": "m", **error})]
    with pytest.raises(TransferFailed) as caught:
        client.transfer(JOB, fleet)
    return caught.value.result


def test_a_failed_transfer_is_gone_on_with_by_its_handle(client: Client, script: Script) -> None:
    handle = failed_result(client, script).resume_handle
    other = client_of(script, now=lambda: 1000.0)
    other.identity = RunIdentity("test", "somebody", "else")
    other._provisioner = client.provisioner
    script.done.clear()
    script.statuses = [status("succeeded", epoch=2)]
    assert other.resume(handle).resume_handle == ""
    assert script.keys == [(client.transfer_key(JOB), 1), (client.transfer_key(JOB), 2)]
    provisioner = client.provisioner
    assert isinstance(provisioner, FakeProvisioner)
    assert len({(spec.key, spec.generation) for spec in provisioner.specs}) == 1
    assert names(script)[-2:] == ["wind_up", "destroy"]


def test_a_fleet_that_is_up_stays_up_after_a_resume(client: Client, script: Script) -> None:
    handle = failed_result(client, script).resume_handle
    script.found, script.statuses = (FoundGateway(f"{A}/0"),), [status("succeeded")]
    client.resume(handle)
    assert "destroy" not in names(script)
    # One that a resume has brought up goes down, when it fails as well.
    script.found = ()
    script.statuses = [status("failed", error={"code": "store-error", "message": "again"})]
    with pytest.raises(TransferFailed, match="again"):
        client.resume(handle)
    assert script.done[-1] == "destroy"


def test_a_handle_that_ran_out_builds_nothing(script: Script) -> None:
    handle = failed_result(client_of(script, now=lambda: 0.0), script).resume_handle
    script.done.clear()
    with pytest.raises(ConfigurationInvalid, match="ran out"):
        client_of(script, now=lambda: 86_400.0).resume(handle)
    assert script.done == []


def test_what_a_resume_cannot_help_leaves_no_handle(client: Client, script: Script) -> None:
    assert failed_result(client, script, is_permanent=True).resume_handle == ""
    fleet = client.provision(PLAN)
    script.statuses = [status("cancelled")]
    with pytest.raises(TransferFailed) as caught:
        client.transfer(JOB, fleet)
    assert caught.value.result.resume_handle == ""  # type: ignore[attr-defined]
    long = replace(JOB, include=tuple(uuid.uuid4().hex for _ in range(1000)))
    script.statuses = [status("failed", error={"code": "store-error", "message": "m"})]
    with pytest.raises(TransferFailed) as caught:
        client.transfer(long, fleet)
    result: Any = caught.value.result
    assert (result.resume_handle, "too long" in result.warnings[0]) == ("", True)


def test_where_nothing_was_begun_there_is_nothing_to_go_on_with(
    client: Client, script: Script
) -> None:
    lost = {"code": "store-unavailable", "message": "the source does not answer"}
    fleet = client.provision(PLAN)

    def handle(**fields: Any) -> str:
        script.statuses = [status("failed", error=lost, **fields)]
        with pytest.raises(TransferFailed) as caught:
            client.transfer(JOB, fleet, least_epoch=fields.get("epoch", 1))
        return caught.value.result.resume_handle  # type: ignore[attr-defined,no-any-return]

    assert handle(objects=0, copied=0) == ""
    assert handle(objects=0, copied=0, epoch=2) != "", "an earlier epoch has begun something"
    assert handle(objects=1) != ""


@pytest.mark.parametrize(
    ("codes", "failed", "helps"),
    [
        (["already-exists", "already-exists"], 2, False),
        (["already-exists", "invalid-key"], 2, True),  # a folder in the way may be removed
        (["metadata-not-carried"], 1, False),
        (["already-exists", "permission-denied"], 2, True),  # it may be granted
        (["already-exists"], 2, True),  # the status does not list them all
    ],
)
def test_objects_that_would_fail_again_leave_no_handle(
    codes: list[str], failed: int, helps: bool, client: Client, script: Script
) -> None:
    rows = tuple(
        {"source": "a/x", "destination": "b/x", "code": code, "reason": "r", "attempts": 1}
        for code in codes
    )
    error = {"code": "objects-failed", "message": "m"}
    script.statuses = [status("failed", error=error, failures=rows, failed=failed)]
    with pytest.raises(TransferFailed) as caught:
        client.transfer(JOB, client.provision(PLAN))
    assert bool(caught.value.result.resume_handle) is helps  # type: ignore[attr-defined]


# -- moves


@pytest.fixture
def removals(script: Script, monkeypatch: pytest.MonkeyPatch) -> Script:
    from skyplane_orchestration.transfer import move

    def remove(job: Any, rows: Any, credentials: Any, removal: Any) -> None:
        script.do("remove")
        removal.removed, removal.failed = 1, len(script.slept)
        removal.reasons += ["x is still there: not now"] * removal.failed

    monkeypatch.setattr(move, "check_move", lambda *_: script.do("check"))
    monkeypatch.setattr(move, "remove_sources", remove)
    return script


MOVE = replace(JOB, move=True)


def test_a_move_is_checked_first_and_ends_with_the_deletes(
    client: Client, removals: Script
) -> None:
    result = client.run(MOVE, plan=PLAN)
    assert (result.succeeded, result.moved) == (True, 1)
    assert names(removals)[:6] == ["ensure", "check", "submit", "abort", "remove", "release"]


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_what_did_not_end_well_is_not_deleted(state: str, client: Client, removals: Script) -> None:
    fleet = client.provision(PLAN)
    failed = status(state, error={"code": "objects-failed", "message": "m"}, failed=1)
    removals.statuses = [failed]
    with pytest.raises(TransferFailed):
        client.transfer(MOVE, fleet)
    assert "remove" not in names(removals)
    if state == "failed":
        removals.statuses = [failed]
        assert client.transfer(replace(MOVE, allow_failed=True), fleet).moved == 1


def test_a_source_that_is_left_is_no_success(client: Client, removals: Script) -> None:
    fleet = client.provision(PLAN)
    removals.statuses = [status(), status("succeeded")]  # one pause: one that fails
    with pytest.raises(TransferFailed, match="not now") as caught:
        client.transfer(MOVE, fleet)
    result: Any = caught.value.result
    assert (result.error_code, result.moved, result.copied) == ("sources-left", 1, 1)
    removals.statuses = [status("succeeded")]
    removals.errors["remove"] = GatewayUnreachable("the lead is gone")
    with pytest.raises(TransferFailed, match=r"0 of 1 sources.*the lead is gone"):
        client.transfer(MOVE, fleet)


def test_a_move_onto_itself_is_refused_for_good(client: Client, removals: Script) -> None:
    removals.errors["remove"] = ConfigurationInvalid("one place by two names")
    with pytest.raises(TransferFailed, match=r"^one place by two names") as caught:
        client.run(MOVE, plan=PLAN)
    result: Any = caught.value.result
    assert (result.error_code, result.moved) == (ConfigurationInvalid.code, 0)
    assert (caught.value.is_permanent, result.resume_handle) == (True, "")


# -- plans


def test_without_an_objective_the_rate_of_the_direct_path(client: Client) -> None:
    default = client.default_objective(A, B)
    assert isinstance(default, MinimizeCost)
    plan = client.plan(JOB)
    assert plan.throughput_gbps >= default.min_throughput_gbps * (1 - 1e-6)
    assert (plan.src, plan.dst, plan.volume_gb) == (A, B, 10.0)


def test_inside_one_region_any_rate_will_do(client: Client) -> None:
    assert client.default_objective(A, A) == MinimizeCost(1.0)
    assert client.default_objective("local:here", A) == MinimizeCost(1.0)


def test_the_objective_of_the_job_counts(client: Client) -> None:
    fast = client.plan(replace(JOB, objective=MaximizeThroughput(max_usd_per_gb=0.2)))
    assert fast.throughput_gbps >= client.plan(JOB).throughput_gbps


def test_a_client_of_nobody_is_a_run_of_its_own() -> None:
    assert Client().identity.fleet_key() != Client().identity.fleet_key()


def test_the_transfer_key_is_that_of_the_job_and_not_of_how_it_is_carried_out() -> None:
    client = Client(identity=RunIdentity("prod", "dag", "run"))
    job = TransferJob(Location("s3://a/x/"), Location("s3://b/y/"))
    key = client.transfer_key(job)
    # Fixed: a later release must find the transfers of this one.
    assert key == "9bfb0838562d18f5a2b9831784e8c957"
    assert client.transfer_key(replace(job, verify="reread", limits=Limits(chunk_mib=8))) == key
    others: list[TransferJob] = [
        replace(job, recursive=False),
        replace(job, conflict="skip"),
        replace(job, include=("*.csv",)),
        replace(job, exclude=("*.csv",)),
        replace(job, destination=Location("s3://b/z/")),
    ]
    assert len({key, *(client.transfer_key(other) for other in others)}) == 6
