"""What needs no gateways: a job whose every object is already where and as it shall be."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import InvalidKey, PermissionDenied
from skyplane_gateway.journal.document import journal_key
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_gateway.stores.wrappers.retrying import RetryingStore
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import open as storage_open, preflight
from skyplane_orchestration.storage.place_digest import source_version
from skyplane_orchestration.storage.source_listing import PAGE_ROWS
from skyplane_orchestration.transfer import nothing_to_do
from skyplane_orchestration.transfer.nothing_to_do import read_ahead, result_if_unchanged

NONE = CredentialSources(is_ambient_allowed=False)
KEY, OTHER = "ab" * 16, "cd" * 16


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    """`in` and `out` hold the same, with the same times."""
    for end in ("in", "out"):
        for name in ("a.csv", "b.csv", "sub/c.txt"):
            path = tmp_path / end / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"the same")
            os.utime(path, (1e9, 1e9))
    return tmp_path


def job_of(ends: Path, **more: Any) -> TransferJob:
    more = {"conflict": "replace-if-different", **more}
    return TransferJob(Location(f"{ends}/in/"), Location(f"{ends}/out/"), **more)


def unchanged(job: TransferJob) -> TransferResult | None:
    return result_if_unchanged(job, KEY, NONE, Clock())


def files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize("conflict", ["skip", "replace-if-newer", "replace-if-different"])
def test_an_unchanged_destination_needs_no_lead(ends: Path, conflict: str) -> None:
    before = files(ends)
    result = unchanged(job_of(ends, conflict=conflict))
    assert result is not None
    assert (result.state, result.used_gateways, result.transfer_key) == ("succeeded", False, KEY)
    assert (result.objects, result.skipped, result.copied, result.failed) == (3, 3, 0, 0)
    assert (result.copied_bytes, result.cost.total_usd) == (0, 0.0)
    assert (result.source, result.destination) == (f"file://{ends}/in/", f"file://{ends}/out/")
    assert files(ends) == before, "nothing is written, no journal either"


def test_its_digest_is_that_of_the_source(ends: Path) -> None:
    job = job_of(ends, exclude=("b.*",))
    seen = source_version(job.source, NONE, recursive=True, include=(), exclude=("b.*",))
    result = unchanged(job)
    assert result is not None
    assert (result.source_digest, result.objects) == (seen.digest, seen.objects)


def test_a_missing_or_different_object_needs_a_lead(ends: Path) -> None:
    (ends / "out/sub/c.txt").write_bytes(b"longer than before")
    assert unchanged(job_of(ends)) is None
    (ends / "out/sub/c.txt").unlink()
    assert unchanged(job_of(ends)) is None
    left_out = unchanged(job_of(ends, exclude=("sub/*",)))
    assert left_out is not None
    assert left_out.skipped == 2


@pytest.mark.parametrize("conflict", ["fail", "replace"])
def test_a_rule_that_keeps_no_object_lists_nothing(
    ends: Path, conflict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_store(*_: object) -> None:
        raise AssertionError("the lead lists both ends anyway")

    monkeypatch.setattr(storage_open, "open_store", no_store)
    assert unchanged(job_of(ends, conflict=conflict)) is None


def test_a_move_is_never_up_to_date(ends: Path) -> None:
    assert unchanged(job_of(ends, move=True)) is None


def test_no_objects_are_a_success_only_where_that_is_allowed(ends: Path) -> None:
    nothing: dict[str, Any] = {"include": ("*.parquet",)}
    assert unchanged(job_of(ends, **nothing)) is None
    allowed = unchanged(job_of(ends, **nothing, allow_empty=True))
    assert allowed is not None
    assert (allowed.objects, allowed.succeeded) == (0, True)


def test_a_transfer_with_a_journal_needs_a_lead(ends: Path) -> None:
    """It names uploads to abort, and objects that could not be verified."""
    other = ends / "out" / journal_key("", OTHER, 3)
    other.parent.mkdir(parents=True)
    other.write_bytes(b"{}")
    assert unchanged(job_of(ends)) is not None
    own = ends / "out" / journal_key("", KEY, 1)
    own.parent.mkdir(parents=True)
    own.write_bytes(b"{}")
    assert unchanged(job_of(ends)) is None


@pytest.mark.parametrize(("most", "is_compared"), [(5, False), (6, True)])
def test_more_keys_than_the_limit_need_a_lead(
    ends: Path, most: int, is_compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nothing_to_do, "MOST_KEYS", most)
    assert (unchanged(job_of(ends)) is not None) is is_compared


def test_the_listing_ends_at_the_first_object_to_copy(
    ends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ends / "out/a.csv").unlink()
    seen: list[str] = []
    listing = RetryingStore.list

    def noted(self: RetryingStore, prefix: str, **more: Any) -> Any:
        for row in listing(self, prefix, **more):
            seen.append(row.key)
            yield row

    monkeypatch.setattr(RetryingStore, "list", noted)
    assert unchanged(job_of(ends)) is None
    assert [Path(key).name for key in seen] == ["a.csv", "b.csv"], "one of each end"


def test_errors_of_the_comparison_are_left_to_the_lead(
    ends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = TransferJob(
        Location(f"{ends}/none"), Location(f"{ends}/out/x"), recursive=False, conflict="skip"
    )
    itself = TransferJob(Location(f"{ends}/in/"), Location(f"{ends}/in/"), conflict="skip")
    for job in (single, itself):
        assert unchanged(job) is None

    def closed(self: LocalStore, prefix: str, **more: Any) -> Any:
        raise PermissionDenied("the folder cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "list", closed)
        assert unchanged(job_of(ends)) is None

    def refuse(kind: str, key: str, size_bytes: int) -> None:
        raise InvalidKey(f"{key!r} cannot be a file")

    monkeypatch.setattr(nothing_to_do, "check_destination_key", refuse)
    assert unchanged(job_of(ends)) is None


def test_it_agrees_with_the_preview(ends: Path) -> None:
    for change in (b"the same", b"other, and longer"):
        (ends / "out/b.csv").write_bytes(change)
        actions = {row.action for row in preflight.previewed(job_of(ends), NONE)}
        assert (unchanged(job_of(ends)) is not None) == (actions == {"skip"})


def test_reserved_keys_are_counted_as_by_a_lead(ends: Path) -> None:
    stray = ends / "in" / journal_key("", OTHER, 1)
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"{}")
    result = unchanged(job_of(ends))
    assert result is not None
    assert (result.objects, result.reserved, result.warnings) == (3, 1, ())


def test_patterns_without_a_match_are_told_as_by_a_lead(
    ends: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = replace(job_of(ends), exclude=("none/", "a*"), publish_last=("/none",))
    result = unchanged(job)
    assert result is not None
    list(preflight.previewed(job, NONE))
    said = "no key at the source matches exclude 'none/', publish_last '/none', so"
    logged = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert [one.startswith(said) for one in (*result.warnings, *logged)] == [True] * 2


def test_archived_objects_that_are_skipped_are_counted(
    ends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects that are equal need no read, so their class does not matter."""
    list_files = LocalStore.list

    def all_archived(store: LocalStore, prefix: str, **more: Any) -> Any:
        return (replace(row, archived="it is") for row in list_files(store, prefix, **more))

    monkeypatch.setattr(LocalStore, "list", all_archived)
    result = unchanged(job_of(ends))
    assert result is not None
    assert result.warnings == ()
    (ends / "out/b.csv").unlink()
    assert unchanged(job_of(ends)) is None
    result = unchanged(job_of(ends, on_archived_object="skip"))
    assert result is not None
    assert (result.objects, result.skipped) == (3, 3)
    [warning] = result.warnings
    assert "1 object" in warning


# -- A listing that is read ahead has the same rows, and stops soon after its caller


@pytest.mark.parametrize(
    "count", [0, 1, PAGE_ROWS - 1, PAGE_ROWS, 2 * PAGE_ROWS, 7 * PAGE_ROWS + 1]
)
def test_the_rows_are_the_same(count: int) -> None:
    assert list(read_ahead(iter(range(count)))) == list(range(count))


@pytest.mark.parametrize("count", [5, 3 * PAGE_ROWS])
def test_an_error_comes_after_the_rows_of_the_pages_before(count: int) -> None:
    def rows() -> Iterator[int]:
        yield from range(count)
        raise ConnectionError("gone")

    seen: list[int] = []
    with pytest.raises(ConnectionError, match="gone"):
        seen.extend(read_ahead(rows()))
    assert seen == list(range(count))


def test_nothing_is_read_ahead_of_the_first_page() -> None:
    read: list[int] = []
    rows = read_ahead(read.append(n) or n for n in range(10))  # type: ignore[func-returns-value]
    assert next(rows) == 0
    assert read == [0]


def test_the_thread_ends_when_the_caller_stops() -> None:
    rows = read_ahead(iter(range(100 * PAGE_ROWS)))
    for _ in range(PAGE_ROWS + 1):
        next(rows)
    [thread] = [one for one in threading.enumerate() if one.name == "listing"]
    rows.close()  # type: ignore[attr-defined]
    thread.join(10)
    assert not thread.is_alive()
