"""What `FleetControl` asks of gateways; the gateways are fakes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.transfer.samples import KEY, fleet_of

from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.config import AttachOrder
from skyplane_gateway.journal.document import journal_key
from skyplane_gateway.stores import ListedRows
from skyplane_orchestration.errors import (
    AddressTaken,
    ConfigurationInvalid,
    FleetLost,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    NotAuthorised,
    NotFound,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_orchestration.model.fleet import STORE_IDENTITY, GatewayHandle
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.recovery.failover_decisions import FleetView, Submit, Tenure
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.fleet_control import (
    FleetControl,
    SubmittedTransfer,
    TransferRequest,
)
from skyplane_orchestration.transfer.gateway_credentials import SentCredentials

JOB = TransferJob(Location("/data/in/"), Location("/data/out/"))
LED_BY_B = SubmittedTransfer(KEY, 1, "b", joined=False)


def sealing_key(key: str, start_id: str) -> bytes:
    return sha256(f"{key} {start_id}".encode()).digest()


class FakeControl:
    """One gateway's answers; errors by verb."""

    def __init__(self, node: str, calls: list[tuple[Any, ...]]) -> None:
        self.node, self.calls = node, calls
        self.leading: dict[str, Any] = {}
        self.attached: dict[str, Any] = {}
        self.released: dict[str, Any] = {}
        self.routes: list[dict[str, Any]] = []
        self.errors: dict[str, SkyplaneError] = {}
        self.clears = True
        self.followers = 0
        self.needs_credentials: dict[str, list[str]] = {}
        self.drains = True
        self.sealing_key: str | None = None
        self.credentials: Any = None
        self.tried_prefix: str | None = ""
        self.listed: ListedRows | None = None

    def _say(self, verb: str, *more: Any) -> None:
        self.calls.append((self.node, verb, *more))
        if verb in self.errors:
            raise self.errors[verb]

    def status(self) -> dict[str, Any]:
        self._say("status")
        return {
            "leading": self.leading,
            "attached": self.attached,
            "released": self.released,
            "routes": self.routes,
            "needs_credentials": self.needs_credentials,
        }

    def renew_credentials(self, key: str, *, epoch: int, side: str, credentials: Any) -> None:
        self._say("renew credentials", side, epoch, dict(credentials))

    def attach(self, key: str, order: AttachOrder) -> None:
        self.sealing_key = order.sealing_key
        self.credentials = order.credentials
        self.tried_prefix = order.tried_prefix
        limit = [] if order.bytes_per_s is None else [order.bytes_per_s]
        self._say("attach", order.side, order.epoch, *limit)

    def submit(
        self, key: str, *, epoch: int, spec: Any, listed: ListedRows | None
    ) -> dict[str, Any]:
        self._say("submit", epoch)
        self.listed = listed
        return {"epoch": epoch, "joined": False}

    def cancel(self, key: str) -> None:
        self._say("cancel")

    def release(self, key: str, epoch: int, *, journals_in: str | None = None) -> bool:
        self._say("release", journals_in)
        return journals_in is not None and self.clears

    def log_tail(self) -> str:
        self._say("log")
        return f"log of {self.node}"

    def shutdown(self) -> None:
        self._say("shutdown")

    def transfer_status(
        self, key: str, *, renew: bool = True, wait_s: float = 0.0
    ) -> dict[str, Any]:
        self._say("follow" if renew else "followers", key)
        return {"followers": self.followers}

    def drain(self, *, unless_leading: bool = False) -> bool:
        self._say("drain", unless_leading)
        return self.drains

    def report(self, key: str, *, offset: int = 0) -> dict[str, Any]:
        self._say("report", offset)
        return {"rows": [{"n": offset}], "next_offset": offset + 1, "complete": offset == 2}

    def close(self) -> None: ...


class FakeSessions:
    """As `FleetSessions`, with sequential calls."""

    def __init__(self, *paths: str) -> None:
        self.fleet = fleet_of(*paths)
        self.calls: list[tuple[Any, ...]] = []
        self.gateways = {
            handle.node: FakeControl(handle.node, self.calls) for handle in self.fleet.gateways
        }

    def of(self, handle: GatewayHandle) -> FakeControl:
        return self.gateways[handle.node]

    def each(
        self, handles: Iterable[GatewayHandle], call: Callable[[Any, Any], Any]
    ) -> dict[str, Any]:
        return {handle.node: call(handle, self.of(handle)) for handle in handles}

    def each_that_answers(
        self, handles: Iterable[GatewayHandle], call: Callable[[Any, Any], Any]
    ) -> tuple[dict[str, Any], dict[str, SkyplaneError]]:
        answers, errors = {}, {}
        for handle in handles:
            try:
                answers[handle.node] = call(handle, self.of(handle))
            except SkyplaneError as error:
                errors[handle.node] = error
        return answers, errors


def control_of(sessions: FakeSessions) -> FleetControl:
    return FleetControl(sessions, sealing_key)  # type: ignore[arg-type]


def request_of(job: TransferJob = JOB) -> TransferRequest:
    return TransferRequest(KEY, job, SentCredentials(CredentialSources()))


def submit(sessions: FakeSessions, job: TransferJob = JOB, **more: Any) -> SubmittedTransfer:
    return control_of(sessions).submit(request_of(job), **more)


def test_sources_share_the_bandwidth_of_the_transfer() -> None:
    sessions = FakeSessions("ab", "cd")
    control_of(sessions).submit(request_of(replace(JOB, bwlimit="1M")))
    attached = [call for call in sessions.calls if call[1] == "attach"]
    assert attached[:2] == [
        ("a", "attach", "source", 1, 524_288.0),
        ("c", "attach", "source", 1, 524_288.0),
    ]
    assert attached[2:] == [("b", "attach", "sink", 1), ("d", "attach", "sink", 1)]


@pytest.mark.parametrize(
    ("encrypt", "host", "is_encrypted"),
    [
        ("auto", "this machine", False),
        ("auto", "", True),
        ("always", "this machine", True),
        ("never", "", False),
    ],
)
def test_both_ends_get_one_key_where_bytes_leave_the_machine(
    encrypt: Any, host: str, is_encrypted: bool
) -> None:
    sessions = FakeSessions("ab")
    sessions.fleet = replace(sessions.fleet, host=host)
    submit(sessions, replace(JOB, encrypt=encrypt))
    keys = [sessions.gateways[node].sealing_key for node in "ab"]
    key = sealing_key(KEY, sessions.fleet.start_id)
    assert keys == [key.hex() if is_encrypted else None] * 2


def with_identity(sessions: FakeSessions) -> None:
    """The gateways open buckets of S3 with the identities of their instances."""
    gateways = [
        replace(handle, details={STORE_IDENTITY: "s3"}) for handle in sessions.fleet.gateways
    ]
    sessions.fleet = replace(sessions.fleet, gateways=tuple(gateways))


@pytest.mark.parametrize(
    ("location", "is_sent"),
    [
        (Location("s3://b/p/", region="aws:eu-west-3"), False),
        (Location("s3://b/p/", endpoint_url="https://minio.example"), True),
        (Location("s3://b/p/", credential_ref="test:x"), True),
    ],
)
def test_gateways_with_an_identity_of_their_own_get_no_credentials(
    location: Location, is_sent: bool
) -> None:
    sessions = FakeSessions("ab")
    with_identity(sessions)
    sources = CredentialSources({"test": lambda _, location: Credentials({"token": "t"})})
    request = TransferRequest(KEY, replace(JOB, source=location), SentCredentials(sources))
    with patch.dict(os.environ, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}):
        control_of(sessions).submit(request)
    assert (sessions.gateways["a"].credentials is not None) is is_sent


def test_both_ends_are_attached_before_the_first_source_is_asked_to_lead() -> None:
    sessions = FakeSessions("arb", "crd")
    submitted = submit(sessions)
    assert submitted == SubmittedTransfer(KEY, 1, "a", joined=False)
    assert [call for call in sessions.calls if call[1] != "status"] == [
        ("a", "attach", "source", 1),
        ("c", "attach", "source", 1),
        ("b", "attach", "sink", 1),
        ("d", "attach", "sink", 1),
        ("a", "submit", 1),
    ]
    # What the others know of a transfer, its lead knows too, if it is asked after them.
    assert [call[0] for call in sessions.calls if call[1] == "status"][-1] == "a"
    assert ("r", "status") not in sessions.calls, "relays know of no transfer"


@pytest.mark.parametrize(
    ("led", "attached_at_lead", "attached_at_sink", "epoch"),
    [
        (None, None, None, 1),
        # Another orchestrator is on its way to submitting: the same epoch, so as to join.
        (None, (1, False), (1, False), 1),
        (None, (1, False), None, 1),
        ((1, "succeeded"), None, None, 2),
        ((1, "failed"), (1, True), (1, True), 2),
        # Its lead was replaced and remembers nothing; the sink does.
        (None, None, (1, True), 2),
        (None, None, (5, True), 6),
        (None, None, (5, False), 5),
        ((2, "cancelled"), None, (5, False), 5),
    ],
)
def test_a_submit_chooses_the_epoch(
    led: tuple[int, str] | None,
    attached_at_lead: tuple[int, bool] | None,
    attached_at_sink: tuple[int, bool] | None,
    epoch: int,
) -> None:
    sessions = FakeSessions("ab")
    if led is not None:
        sessions.gateways["a"].leading[KEY] = {"epoch": led[0], "state": led[1]}
    for node, row in (("a", attached_at_lead), ("b", attached_at_sink)):
        if row is not None:
            sessions.gateways[node].attached[KEY] = {"epoch": row[0], "is_used": row[1]}
    # Of another transfer nothing follows.
    sessions.gateways["b"].attached["ef" * 16] = {"epoch": 9, "is_used": True}
    assert submit(sessions).epoch == epoch


@pytest.mark.parametrize("least_epoch", [1, 2])
def test_only_the_lead_of_the_first_epoch_gets_listed_rows(least_epoch: int) -> None:
    sessions, listed = FakeSessions("ab"), ListedRows("data/in/", (), is_complete=True)
    submit(sessions, least_epoch=least_epoch, listed=listed)
    assert sessions.gateways["a"].listed is (listed if least_epoch == 1 else None)


def test_a_running_transfer_is_joined_and_not_disturbed() -> None:
    sessions = FakeSessions("ab", "cb")
    sessions.gateways["c"].leading[KEY] = {"epoch": 4, "state": "running"}
    assert submit(sessions) == SubmittedTransfer(KEY, 4, "c", joined=True)
    assert {call[1] for call in sessions.calls} == {"status", "follow"}


def test_a_fleet_that_is_torn_down_during_the_join_is_lost() -> None:
    sessions = FakeSessions("ab", "cb")
    sessions.gateways["c"].leading[KEY] = {"epoch": 4, "state": "running"}
    sessions.gateways["c"].errors["follow"] = GatewayUnreachable("gone")
    with pytest.raises(FleetLost, match="gone"):
        submit(sessions)
    sessions.gateways["c"].errors["follow"] = UnknownTransfer("it was started anew")
    assert submit(sessions).lead == "c"


def test_followers_are_counted() -> None:
    """0 where the lead does not answer."""
    sessions = FakeSessions("ab")
    sessions.gateways["a"].followers = 2
    control = control_of(sessions)
    submitted = SubmittedTransfer(KEY, 4, "a", joined=True)
    assert control.followers(submitted) == 2
    sessions.gateways["a"].errors["followers"] = GatewayUnreachable("gone")
    assert control.followers(submitted) == 0


@pytest.mark.parametrize(
    ("state", "drains", "may_go"),
    [("running", True, False), ("succeeded", True, True), ("succeeded", False, False)],
)
def test_a_fleet_drains_unless_a_transfer_runs_on_it(
    state: str, drains: bool, may_go: bool
) -> None:
    """Also a transfer that has begun since the inspection."""
    sessions = FakeSessions("ab")
    sessions.gateways["b"].errors["status"] = GatewayUnreachable("gone")
    sessions.gateways["a"].leading[KEY] = {"epoch": 2, "state": state}
    sessions.gateways["a"].drains = drains
    assert control_of(sessions).drain_if_idle() == may_go
    drained = [call for call in sessions.calls if call[1] == "drain"]
    assert drained == ([] if state == "running" else [("a", "drain", True)])


@pytest.mark.parametrize(
    ("state", "attached_epoch", "submitted"),
    [
        ("succeeded", 4, SubmittedTransfer(KEY, 4, "c", joined=True)),
        # Released since: a new submit compares again.
        ("succeeded", None, SubmittedTransfer(KEY, 5, "a", joined=False)),
        ("succeeded", 5, SubmittedTransfer(KEY, 6, "a", joined=False)),
        ("failed", 4, SubmittedTransfer(KEY, 5, "a", joined=False)),
        ("cancelled", 4, SubmittedTransfer(KEY, 5, "a", joined=False)),
    ],
)
def test_a_success_is_joined_until_it_is_released(
    state: str, attached_epoch: int | None, submitted: SubmittedTransfer
) -> None:
    sessions = FakeSessions("ab", "cb")
    sessions.gateways["c"].leading[KEY] = {"epoch": 4, "state": state}
    if attached_epoch is not None:
        sessions.gateways["c"].attached[KEY] = {"epoch": attached_epoch, "is_used": True}
    assert submit(sessions) == submitted


@pytest.mark.parametrize(
    ("node", "verb", "error"),
    [
        ("b", "status", GatewayUnreachable("gone")),
        ("a", "status", GatewayUnreachable("gone")),
        ("a", "attach", GatewayUnreachable("gone")),
        ("b", "attach", GatewayUnreachable("gone")),
        ("a", "submit", GatewayUnreachable("gone")),
        ("a", "submit", GatewayLost("the path a -> r -> b is down")),
    ],
)
def test_a_gateway_that_does_not_answer_is_a_lost_fleet(
    node: str, verb: str, error: SkyplaneError
) -> None:
    sessions = FakeSessions("arb")
    sessions.gateways[node].errors[verb] = error
    with pytest.raises(FleetLost, match=error.message):
        submit(sessions)


@pytest.mark.parametrize(
    ("verb", "error", "said"),
    [
        ("attach", GatewayUnreachable("gone"), "cannot be reached from here"),
        ("submit", GatewayLost("no sink gateway answers"), "the lead answers, but not all"),
        ("submit", GatewayDraining("a is ending"), "a gateway of the fleet is ending"),
    ],
)
def test_a_lost_fleet_says_who_cannot_reach_whom(
    verb: str, error: SkyplaneError, said: str
) -> None:
    sessions = FakeSessions("arb")
    sessions.gateways["a"].errors[verb] = error
    with pytest.raises(FleetLost) as caught:
        submit(sessions)
    assert said in caught.value.message
    assert ("from here" in caught.value.message) == (verb == "attach")


def test_other_errors_of_a_submit_are_raised_unchanged() -> None:
    sessions = FakeSessions("arb")
    sessions.gateways["b"].errors["attach"] = NotFound("there is no bucket 'x'")
    with pytest.raises(NotFound):
        submit(sessions)
    broken = FakeSessions("ab")
    broken.gateways["a"].leading[KEY] = []
    with pytest.raises(ConfigurationInvalid):
        submit(broken)


def test_a_running_transfer_is_joined_although_other_gateways_are_lost() -> None:
    sessions = FakeSessions("ab", "cb")
    sessions.gateways["a"].errors["status"] = GatewayUnreachable("gone")
    sessions.gateways["c"].leading[KEY] = {"epoch": 2, "state": "running"}
    assert submit(sessions) == SubmittedTransfer(KEY, 2, "c", joined=True)


def test_a_released_epoch_is_not_used_again() -> None:
    """Released gateways remember the epoch."""
    sessions = FakeSessions("ab", "cb")
    sessions.gateways["b"].released[KEY] = {"epoch": 2, "heard": 2}
    assert submit(sessions) == SubmittedTransfer(KEY, 3, "a", joined=False)


def test_the_newer_of_two_leads_is_joined() -> None:
    """The older lead was paused and does not know yet that its epoch is over."""
    sessions = FakeSessions("ab", "cb")
    sessions.gateways["a"].leading[KEY] = {"epoch": 1, "state": "running"}
    sessions.gateways["c"].leading[KEY] = {"epoch": 2, "state": "running"}
    assert submit(sessions) == SubmittedTransfer(KEY, 2, "c", joined=True)


def test_an_inspection_returns_what_the_answering_gateways_know() -> None:
    sessions = FakeSessions("arb", "crd")
    for node in "ad":
        sessions.gateways[node].errors["status"] = GatewayUnreachable("gone")
    sessions.gateways["c"].leading[KEY] = {"epoch": 3, "state": "failed"}
    sessions.gateways["b"].attached[KEY] = {"epoch": 4, "is_used": True}
    control = control_of(sessions)
    assert control.inspect(KEY) == FleetView(
        ("c",), ("b",), Tenure("c", 3), None, 5, newest_epoch=4
    )
    sessions.gateways["b"].released[KEY] = {"epoch": 6, "heard": 2}
    assert control.inspect(KEY) == FleetView(
        ("c",), ("b",), Tenure("c", 3), None, 7, newest_epoch=6, acknowledged_epoch=2
    )
    sessions.gateways["c"].errors["status"] = NotAuthorised("another fleet's")
    with pytest.raises(NotAuthorised):
        control.inspect(KEY)


def test_a_document_of_other_routes_is_not_used() -> None:
    """Its figures would be of paths that no byte takes; the caller asks for a new document."""
    sessions = FakeSessions("arb")
    sessions.gateways["a"].leading[KEY] = {"epoch": 2, "state": "running"}
    sessions.gateways["a"].routes = [{"number": 0, "nodes": ["a", "r", "b"]}]
    assert submit(sessions).joined
    sessions.gateways["a"].routes = [{"number": 0}]  # A gateway of the previous release.
    assert submit(sessions).joined
    sessions.gateways["a"].routes = [{"number": 0, "nodes": ["a", "b"]}]
    with pytest.raises(FleetLost, match="other routes than its document says"):
        submit(sessions)


@pytest.mark.parametrize(("key", "is_shared"), [(KEY, False), ("ef" * 16, True)])
def test_a_fleet_that_carries_others(key: str, is_shared: bool) -> None:
    sessions = FakeSessions("ab")
    sessions.gateways["a"].leading[key] = {"epoch": 1, "state": "running"}
    assert control_of(sessions).carries_others(SubmittedTransfer(KEY, 1, "a", False)) == is_shared


def test_a_stranger_at_the_address_of_a_gateway_is_a_lost_gateway() -> None:
    """Once this was taken for a wrong fleet secret, which is permanent."""
    sessions = FakeSessions("arb", "crd")
    for node in "ad":
        sessions.gateways[node].errors["status"] = AddressTaken("not as a")
    control = control_of(sessions)
    assert control.inspect(KEY) == FleetView(("c",), ("b",), None, None, 1)
    with pytest.raises(FleetLost, match="not as a"):
        submit(sessions)
    # And once some have answered, it is no mistake of ours that none does any more.
    for node in "bc":
        sessions.gateways[node].errors["status"] = AddressTaken("not as c")
    assert control.inspect(KEY) == FleetView((), (), None, None, 1)


def test_a_wrong_fleet_secret_is_not_a_lost_fleet() -> None:
    sessions = FakeSessions("arb", "crd")
    for gateway in sessions.gateways.values():
        gateway.errors["status"] = AddressTaken("both need the same fleet secret")
    with pytest.raises(NotAuthorised, match="the same fleet secret"):
        submit(sessions)
    sessions.gateways["d"].errors["status"] = GatewayUnreachable("gone")
    with pytest.raises(FleetLost):
        submit(sessions)


def test_a_take_over_attaches_those_that_answer_alone() -> None:
    sessions = FakeSessions("arb", "crd")
    control = control_of(sessions)
    order = Submit(Tenure("c", 2), ("c",), ("b", "d"))
    taken = control.take_over(request_of(), order)
    assert taken == SubmittedTransfer(KEY, 2, "c", joined=False)
    assert sessions.calls == [
        ("c", "attach", "source", 2),
        ("b", "attach", "sink", 2),
        ("d", "attach", "sink", 2),
        ("c", "submit", 2),
    ]


def test_a_submit_uses_no_epoch_below_the_least() -> None:
    sessions = FakeSessions("ab")
    assert submit(sessions, least_epoch=4).epoch == 4


def test_an_epoch_with_a_journal_is_over(tmp_path: Path) -> None:
    """New gateways remember no epochs; the destination does."""
    job = TransferJob(Location("/data/in/"), Location(f"{tmp_path}/out/"))
    folder = tmp_path / "out/.skyplane/jobs"
    for key, epochs in ((KEY, (2, 3)), ("ef" * 16, (9,))):
        (folder / key).mkdir(parents=True)
        for epoch in epochs:
            journal = journal_key(f"{tmp_path}/out/".lstrip("/"), key, epoch)
            Path("/", journal).write_bytes(b"{}")
    sessions = FakeSessions("ab")
    assert submit(sessions, job).epoch == 4


def test_a_transfer_that_is_submitted_during_the_submit_is_joined(tmp_path: Path) -> None:
    """Another orchestrator submits between the inspection and the listing of journals.

    Its epoch has a journal then, and runs.
    """
    job = TransferJob(Location("/data/in/"), Location(f"{tmp_path}/out/"))
    (tmp_path / "out/.skyplane/jobs" / KEY).mkdir(parents=True)
    journal = Path("/", journal_key(f"{tmp_path}/out/".lstrip("/"), KEY, 1))
    sessions = FakeSessions("ab")

    class Quicker(FakeControl):
        def status(self) -> dict[str, Any]:
            before = dict(self.leading)
            self.leading[KEY] = {"epoch": 1, "state": "running"}
            journal.write_bytes(b"{}")
            return {**super().status(), "leading": before}

    sessions.gateways["a"] = Quicker("a", sessions.calls)
    assert submit(sessions, job) == SubmittedTransfer(KEY, 1, "a", joined=True)
    assert {call[1] for call in sessions.calls} == {"status", "follow"}


def test_a_cancel_goes_to_the_lead_first_and_then_to_the_other_ends() -> None:
    sessions = FakeSessions("arb")
    sessions.gateways["b"].errors["cancel"] = GatewayUnreachable("gone")
    control_of(sessions).cancel(LED_BY_B)
    assert [call[0] for call in sessions.calls] == ["b", "a"]
    control_of(sessions).release(LED_BY_B)
    assert [call[0] for call in sessions.calls[2:]] == ["a", "b"], "a relay has nothing to forget"


def test_the_report_is_read_to_its_end() -> None:
    sessions = FakeSessions("ab")
    control = control_of(sessions)
    rows = list(control.report_rows(SubmittedTransfer(KEY, 1, "a", joined=False)))
    assert rows == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_running_transfers_are_cancelled_before_a_teardown() -> None:
    sessions = FakeSessions("arb")
    sessions.gateways["a"].leading = {
        KEY: {"epoch": 1, "state": "running"},
        "ef" * 16: {"epoch": 1, "state": "succeeded"},
    }
    sessions.gateways["r"].errors["status"] = GatewayUnreachable("gone")
    tails = control_of(sessions).cancel_unended()
    assert tails == {"a": "log of a", "b": "log of b"}
    assert [call[0] for call in sessions.calls if call[1] == "cancel"] == ["a", "b"]
    # The provisioner ends them, under the fleet's lock.
    assert not [call for call in sessions.calls if call[1] == "shutdown"]


def test_transfers_without_an_answering_lead_are_cancelled_at_their_ends() -> None:
    """Otherwise their uploads would stay open, as for a resume."""
    sessions = FakeSessions("ab", "cd")
    sessions.gateways["a"].errors["status"] = GatewayUnreachable("gone")
    sessions.gateways["b"].errors["status"] = GatewayUnreachable("asleep")
    sessions.gateways["d"].attached[KEY] = {"epoch": 2, "is_used": True}
    control_of(sessions).cancel_unended()
    # No call waits for gateways that do not answer.
    assert {call[0] for call in sessions.calls if call[1] == "cancel"} == {"c", "d"}


@pytest.mark.parametrize(("epoch", "cancels"), [(1, False), (2, False), (3, True)])
def test_ended_transfers_are_not_cancelled_before_a_teardown(epoch: int, cancels: bool) -> None:
    sessions = FakeSessions("ab")
    sessions.gateways["a"].leading[KEY] = {"epoch": 2, "state": "failed"}
    sessions.gateways["b"].attached[KEY] = {"epoch": epoch, "is_used": True}
    control_of(sessions).cancel_unended()
    assert any(call[1] == "cancel" for call in sessions.calls) == cancels


def test_fresh_credentials_go_to_the_ends_that_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are resolved anew; a lost gateway does not stop the others from getting them."""
    sessions = FakeSessions("arb", "crd")
    for node, sides in (("a", ["source"]), ("b", ["sink"]), ("d", ["sink"])):
        sessions.gateways[node].needs_credentials = {KEY: sides}
    sessions.gateways["b"].errors["renew credentials"] = GatewayUnreachable("gone")
    job = TransferJob(
        Location("/data/in/", credential_ref="env:SRC"),
        Location("/data/out/", credential_ref="env:DST"),
    )
    for prefix in ("SRC", "DST"):
        monkeypatch.setenv(f"{prefix}_ACCESS_KEY_ID", f"fresh {prefix}")
        monkeypatch.setenv(f"{prefix}_SECRET_ACCESS_KEY", "s")
    control = control_of(sessions)
    control.renew_credentials(request_of(job), 3)
    assert [(*call[:4], call[4]["access_key_id"]) for call in sessions.calls if len(call) == 5] == [
        ("a", "renew credentials", "source", 3, "fresh SRC"),
        ("b", "renew credentials", "sink", 3, "fresh DST"),
        ("d", "renew credentials", "sink", 3, "fresh DST"),
    ]
