"""What happens at the end of a transfer, with its gateways made up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyarrow import parquet
from tests.transfer.samples import JOB, KEY, PLAN, A, B, fleet_of, status

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.journal.document import Journal, encode_journal, journal_key
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    GatewayUnreachable,
    PermissionDenied,
    StoreUnavailable,
    TransferFailed,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S, ResumeHandle
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery import destination_cleanup
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import object_manifest
from skyplane_orchestration.transfer import finalize as finalize_module
from skyplane_orchestration.transfer.finalize import finalize, require_success
from skyplane_orchestration.transfer.fleet_control import (
    FleetControl,
    SubmittedTransfer,
    TransferRequest,
)
from skyplane_orchestration.transfer.gateway_credentials import SentCredentials
from skyplane_orchestration.transfer.transfer_monitor import Monitor

FLEET = fleet_of("ab", plan=PLAN, regions={"a": A, "b": B})
MOVE = replace(JOB, move=True)
LOST = {"code": "store-error", "message": "lost"}


@dataclass
class FakeControl:
    """A sink deletes the journals unless `deletes_journals` is False."""

    deletes_journals: bool = True
    done: list[Any] = field(default_factory=list)

    def release(self, submitted: SubmittedTransfer, journals_in: str | None = None) -> bool:
        self.done.append(("release", journals_in))
        return journals_in is not None and self.deletes_journals

    def report_rows(self, submitted: SubmittedTransfer) -> Iterator[Any]:
        return iter(())

    def log_tails(self) -> dict[str, str]:
        return {"a": "all is well", "b": "Traceback (most recent call last): boom"}


def end(
    status: TransferStatus,
    *,
    job: TransferJob = JOB,
    control: FakeControl | None = None,
    manifest: str | None = None,
    is_abandoned: bool = False,
    may_be_repeated: bool = True,
) -> TransferResult:
    """The result of a transfer with this last status."""

    @contextmanager
    def open_(fleet: Fleet) -> Iterator[FleetControl]:
        yield cast(FleetControl, control or FakeControl())

    request = TransferRequest(KEY, job, SentCredentials(CredentialSources()))
    submitted = SubmittedTransfer(KEY, status.epoch, "a", joined=False)
    context: Any = SimpleNamespace(
        identity=SimpleNamespace(may_be_repeated=may_be_repeated, owner="o", run="r"),
        fleets=SimpleNamespace(control=open_),
        clock=Clock(wall=lambda: 1000.0),
        rng=random.Random(1),
        poll_s=1.0,
        credentials=CredentialSources(),
        manifest_key=None,
    )
    with Monitor(request, FLEET, submitted, context) as monitor:
        monitor.is_abandoned = is_abandoned
        return finalize(monitor, status, manifest)


@pytest.mark.parametrize(
    ("state", "error", "is_permanent"),
    [
        ("failed", {"code": "objects-failed", "message": "m", "is_permanent": False}, False),
        ("failed", {"code": "empty-source", "message": "m", "is_permanent": True}, True),
        ("cancelled", None, False),
    ],
)
def test_a_transfer_that_did_not_succeed_raises_with_its_result(
    state: str, error: Any, is_permanent: bool
) -> None:
    last, control = status(state, error=error), FakeControl()
    result = end(last, control=control)
    with pytest.raises(TransferFailed) as caught:
        require_success(result, last)
    assert (caught.value.is_permanent, caught.value.result) == (is_permanent, result)
    assert control.done == [("release", None)], "the journals stay"


def test_the_traceback_of_an_internal_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    row = {"source": "a", "destination": "a", "code": "internal-error", "reason": "r"}
    error = {"code": "objects-failed", "message": ""}
    failures = [{**row, "attempts": 1}]
    last = status("failed", copied=0, failed=1, error=error, failures=failures)
    assert end(last, job=replace(JOB, allow_failed=True)).succeeded
    assert "boom" in caplog.text
    assert "all is well" not in caplog.text


def test_a_manifest_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> str:
        raise StoreUnavailable("the manifest's bucket is down")

    monkeypatch.setattr(object_manifest, "write_manifest", refuse)
    control = FakeControl()
    with pytest.raises(StoreUnavailable):
        end(status("succeeded"), control=control, manifest="s3://m/m.parquet")
    assert control.done == [("release", None)], "credentials must not stay at the gateways"
    result = end(status("failed", error=LOST), manifest="s3://m/m.parquet")
    assert (result.error, result.warnings) == (
        "lost",
        ("after the transfer: the manifest's bucket is down",),
    )


@pytest.mark.parametrize("by", ["a sink", "the orchestrator", "nothing", "nothing: it is damaged"])
def test_the_journals_of_a_success_are_deleted(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TransferJob(Location(f"{tmp_path}/in/"), Location(f"{tmp_path}/out/"))
    folder = f"{tmp_path}/out/".lstrip("/")
    journal = Path("/", journal_key(folder, KEY, 1))
    journal.parent.mkdir(parents=True)
    body = encode_journal(Journal(KEY, 1, "r", 1))
    journal.write_bytes(body[:-1] if "damaged" in by else body)
    if by == "nothing":

        def refuse(*_: Any) -> None:
            raise PermissionDenied("no, not here")

        monkeypatch.setattr(destination_cleanup, "clear_journals", refuse)
    control = FakeControl(deletes_journals=by == "a sink")
    result = end(status("succeeded"), job=job, control=control)
    assert control.done == [("release", folder)]
    assert journal.exists() == (by != "the orchestrator")
    why = {"nothing": "no, not here", "nothing: it is damaged": "cannot be read"}
    assert [why[by] in text for text in result.warnings] == [True] * (by in why)


# -- resume handles


def handle(last: TransferStatus, **more: Any) -> str:
    return end(last, **more).resume_handle


def test_a_failure_leaves_a_handle_for_a_day() -> None:
    found = ResumeHandle.from_text(handle(status("failed", error=LOST, epoch=3)))
    assert (found.transfer_key, found.epoch, found.plan) == (KEY, 3, PLAN)
    assert found.expires_unix_s == 1000.0 + RESUME_TTL_S
    budget = {"code": "budget-reached", "message": "m", "is_permanent": True}
    assert handle(status("failed", error=budget)), "a person may allow more"


def test_what_a_resume_cannot_help_leaves_no_handle() -> None:
    assert handle(status("failed", error={**LOST, "is_permanent": True})) == ""
    assert handle(status("cancelled")) == ""
    rng = random.Random(2)
    long = replace(JOB, include=tuple(rng.randbytes(16).hex() for _ in range(1000)))
    result = end(status("failed", error=LOST), job=long)
    assert (result.resume_handle, "too long" in result.warnings[0]) == ("", True)


def test_a_transfer_that_began_nothing_leaves_no_handle() -> None:
    assert handle(status("failed", error=LOST, objects=0, copied=0)) == ""
    assert handle(status("failed", error=LOST, objects=0, copied=0, epoch=2)), "epoch 1 may have"
    assert handle(status("failed", error=LOST, objects=0, copied=0), is_abandoned=True)


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
    codes: list[str], failed: int, helps: bool
) -> None:
    rows = tuple(
        {"source": "a/x", "destination": "b/x", "code": code, "reason": "r", "attempts": 1}
        for code in codes
    )
    error = {"code": "objects-failed", "message": "m"}
    last = status("failed", error=error, failures=rows, failed=failed)
    assert bool(handle(last)) is helps


@pytest.mark.parametrize(
    ("error", "copied", "may_be_repeated", "stays"),
    [
        (LOST, 0, True, True),
        (LOST, 0, False, True),  # it has a handle
        ({**LOST, "is_permanent": True}, 0, True, False),
        ({**LOST, "is_permanent": True}, 1, True, True),  # a cleared task knows its own copies
        ({**LOST, "is_permanent": True}, 1, False, False),
    ],
)
def test_a_failure_that_nothing_goes_on_by_leaves_no_journal(
    error: dict[str, Any], copied: int, may_be_repeated: bool, stays: bool
) -> None:
    control = FakeControl()
    last = status("failed", error=error, objects=2, copied=copied, unfinished=2 - copied)
    end(last, control=control, may_be_repeated=may_be_repeated)
    assert control.done == [("release", None if stays else "q/")]


# -- moves


@dataclass
class Removals:
    calls: int = 0
    failed: int = 0
    error: Exception | None = None

    def remove(self, job: Any, rows: Any, credentials: Any, removal: Any, rng: Any) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        removal.removed, removal.failed = 1, self.failed
        removal.reasons += ["x is still there: not now"] * self.failed


@pytest.fixture
def removals(monkeypatch: pytest.MonkeyPatch) -> Removals:
    made = Removals()
    monkeypatch.setattr(finalize_module, "remove_sources", made.remove)
    return made


def test_a_move_ends_with_its_deletes(removals: Removals) -> None:
    result = end(status("succeeded"), job=MOVE)
    assert (result.state, result.moved, removals.calls) == ("succeeded", 1, 1)


def test_a_move_that_failed_deletes_nothing(removals: Removals) -> None:
    failed = status("failed", error={"code": "objects-failed", "message": "m"}, failed=1)
    for last in (failed, replace(failed, state="cancelled")):
        end(last, job=MOVE)
    # Another orchestrator has the result, and has deleted the sources.
    end(status("succeeded"), job=MOVE, is_abandoned=True)
    assert removals.calls == 0
    assert end(failed, job=replace(MOVE, allow_failed=True)).moved == 1


def test_a_source_that_is_left_is_no_success(removals: Removals) -> None:
    removals.failed = 1
    result = end(status("succeeded"), job=MOVE)
    assert (result.error_code, result.moved, result.copied) == ("sources-left", 1, 1)
    assert "not now" in result.error
    removals.error = GatewayUnreachable("the lead is gone")
    result = end(status("succeeded"), job=MOVE)
    assert "0 of 1 sources" in result.error
    assert "the lead is gone" in result.error


def test_a_move_onto_itself_is_a_permanent_failure(removals: Removals) -> None:
    removals.error = ConfigurationInvalid("one place by two names")
    last = status("succeeded")
    result = end(last, job=MOVE)
    assert (result.error_code, result.moved) == (ConfigurationInvalid.code, 0)
    assert result.resume_handle == ""
    with pytest.raises(TransferFailed, match=r"^one place by two names") as caught:
        require_success(result, last)
    assert caught.value.is_permanent


# -- deletes at the destination


@pytest.fixture
def synced(tmp_path: Path) -> TransferJob:
    for name in ("in/a", "out/a", "out/extra"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    ends = Location(f"{tmp_path}/in/", A), Location(f"{tmp_path}/out/", B)
    return TransferJob(*ends, delete=True)


def test_a_sync_ends_with_its_deletes_and_the_manifest_has_them(
    synced: TransferJob, tmp_path: Path
) -> None:
    result = end(status("succeeded"), job=synced, manifest=f"{tmp_path}/list.parquet")
    assert (result.state, result.deleted) == ("succeeded", 1)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a"]
    (row,) = parquet.read_table(tmp_path / "list.parquet").to_pylist()
    assert (row["state"], row["source"]) == ("deleted", "")
    assert row["destination"] == f"file://{tmp_path}/out/extra"


@pytest.mark.parametrize("is_abandoned", [True, False])
def test_a_sync_that_has_not_succeeded_deletes_nothing(
    synced: TransferJob, tmp_path: Path, is_abandoned: bool
) -> None:
    """Another orchestrator has the result of an abandoned one, and has deleted."""
    last = status("succeeded") if is_abandoned else status("failed", error=LOST)
    assert end(last, job=synced, is_abandoned=is_abandoned).deleted == 0
    assert (tmp_path / "out/extra").exists()


def test_too_many_deletes_are_a_permanent_failure(synced: TransferJob) -> None:
    last = status("succeeded")
    result = end(last, job=replace(synced, max_delete="0"))
    assert (result.state, result.error_code, result.deleted) == ("failed", "too-many-deletes", 0)
    with pytest.raises(TransferFailed, match="1 object at") as caught:
        require_success(result, last)
    assert caught.value.is_permanent
