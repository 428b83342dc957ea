"""Deletes of what only the destination has: what stays, in which order, and after faults."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from tests.transfer.samples import fleet_of, status

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores.local.store import LocalStore
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    NotFound,
    PermissionDenied,
    StoreUnavailable,
    TooManyDeletes,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.source_listing import SourceListing
from skyplane_orchestration.transfer.deletes import check_extra, delete_extra, preview_extra
from skyplane_orchestration.transfer.results import result_of

NONE = CredentialSources(is_ambient_allowed=False)
EXTRA = ("e0", "e1", "e2", "sub/e3")


@pytest.fixture
def ends(tmp_path: Path) -> Path:
    """`out` holds all of `in`, and four objects more."""
    for end, names in (("in", ("a", "sub/b")), ("out", ("a", "sub/b", *EXTRA))):
        for name in names:
            write(tmp_path / end / name)
    return tmp_path


def write(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def job_of(ends: Path, **more: Any) -> TransferJob:
    more = {"delete": True, "max_delete": "100%", **more}
    return TransferJob(Location(f"{ends}/in/"), Location(f"{ends}/out/"), **more)


def delete(job: TransferJob, **result: Any) -> TransferResult:
    done = replace(result_of(job, fleet_of("ab"), status("succeeded")), **result)
    return delete_extra(job, NONE, done, random.Random(1))


def left(ends: Path) -> list[str]:
    folder = ends / "out"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were deleted, in order."""
    made: list[str] = []
    honest = LocalStore.delete

    def noting(self: LocalStore, key: str, *, if_match: str | None = None) -> None:
        if ".skyplane" not in key:
            assert if_match is not None, "every delete is conditional"
            made.append(key.rpartition("/out/")[2])
        honest(self, key, if_match=if_match)

    monkeypatch.setattr(LocalStore, "delete", noting)
    return made


def after_listing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Make a change when the destination has been listed."""
    honest = LocalStore.list

    def listing(self: LocalStore, prefix: str, **more: Any) -> Iterator[ObjectInfo]:
        yield from honest(self, prefix, **more)
        if prefix.endswith("/out/"):
            change()

    monkeypatch.setattr(LocalStore, "list", listing)


def test_what_only_the_destination_has_is_deleted(ends: Path) -> None:
    write(ends / "out/.skyplane/jobs/ab/0000000001")
    write(ends / "out/keep.tmp")
    plan, found = preview_extra(job_of(ends, exclude=("*.tmp",)), NONE)
    rows = list(found)
    assert (plan.objects, plan.most, len(rows)) == (4, 6, 4)
    result = delete(job_of(ends, exclude=("*.tmp",)))
    assert (result.state, result.deleted, result.warnings) == ("succeeded", 4, ())
    assert left(ends) == [".skyplane/jobs/ab/0000000001", "a", "keep.tmp", "sub/b"]


def test_announcers_are_deleted_first(ends: Path, calls: list[str]) -> None:
    for name in ("z/_SUCCESS", "z/_delta_log/0.json", "z/data", "z/my.done"):
        write(ends / "out" / name)
    delete(job_of(ends, publish_last=("*.done",)))
    assert set(calls[:3]) == {"z/_SUCCESS", "z/_delta_log/0.json", "z/my.done"}
    assert len(calls) == 8


def test_nothing_announced_is_deleted_before_its_announcer(
    ends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ends / "out/_SUCCESS")
    honest = LocalStore.delete

    def refuse(self: LocalStore, key: str, **more: Any) -> None:
        if key.endswith("_SUCCESS"):
            raise PermissionDenied("not allowed")
        honest(self, key, **more)

    monkeypatch.setattr(LocalStore, "delete", refuse)
    result = delete(job_of(ends))
    assert (result.state, result.error_code, result.deleted) == ("failed", "extra-left", 0)
    assert "_SUCCESS is still there: not allowed; run the transfer again" in result.error
    assert set(EXTRA) < set(left(ends))


@pytest.mark.parametrize("counts", [{"failed": 1}, {"unfinished": 1}])
def test_nothing_is_deleted_unless_every_object_was_copied(
    ends: Path, calls: list[str], counts: dict[str, int]
) -> None:
    result = delete(job_of(ends, allow_failed=True), **counts)
    assert (result.state, result.deleted, calls) == ("succeeded", 0, [])
    assert result.warnings == (
        "nothing was deleted at the destination, because not every object was copied",
    )


@pytest.mark.parametrize("filters", [{}, {"include": ("none*",)}, {"newer_than": "2999-01-01"}])
def test_nothing_is_deleted_after_an_empty_listing(
    ends: Path, calls: list[str], filters: dict[str, Any]
) -> None:
    if not filters:
        for name in ("a", "sub/b"):
            (ends / "in" / name).unlink()
    job = job_of(ends, allow_empty=True, **filters)
    assert check_extra(job, NONE, random.Random(1)).is_source_empty
    result = delete(job)
    assert (result.state, result.deleted, calls) == ("succeeded", 0, [])
    assert "because the listing of the source came back empty" in result.warnings[-1]


@pytest.mark.parametrize("end", ["in", "out"])
def test_nothing_is_deleted_after_a_listing_that_failed(
    ends: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    honest = LocalStore.list

    def broken(self: LocalStore, prefix: str, **more: Any) -> Iterator[ObjectInfo]:
        yield from honest(self, prefix, **more)
        if prefix.endswith(f"/{end}/"):
            raise StoreUnavailable("503")

    monkeypatch.setattr(LocalStore, "list", broken)
    with pytest.raises(StoreUnavailable):
        check_extra(job_of(ends), NONE, random.Random(1))
    result = delete(job_of(ends))
    assert (result.error_code, result.deleted, calls) == ("extra-left", 0, [])


@pytest.mark.parametrize(("limit", "allowed"), [("4", True), ("3", False), ("66%", False)])
def test_the_limit_holds_before_and_after_the_copies(
    ends: Path, calls: list[str], limit: str, allowed: bool
) -> None:
    job = job_of(ends, max_delete=limit)
    if allowed:
        assert check_extra(job, NONE, random.Random(1)).objects == 4
        assert delete(job).deleted == 4
        return
    with pytest.raises(TooManyDeletes, match=rf"4 objects at .* max_delete {limit} allows 3;"):
        check_extra(job, NONE, random.Random(1))
    result = delete(job)
    assert (result.state, result.error_code) == ("failed", TooManyDeletes.code)
    assert calls == []


def test_what_changes_after_the_listing_stays(ends: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sync copies a new source object, and another writer replaces an extra one."""

    def change() -> None:
        write(ends / "in/e0")
        write(ends / "out/e1", "of another writer")
        (ends / "out/e2").unlink()

    after_listing(monkeypatch, change)
    result = delete(job_of(ends))
    assert (result.state, result.deleted) == ("succeeded", 1)
    assert left(ends) == ["a", "e0", "e1", "sub/b"]
    assert sorted(text.rpartition("still there: ")[2] for text in result.warnings) == [
        "it is at the source now",
        "it was changed after it had been listed",
    ]


def test_a_delete_whose_first_answer_was_lost_counts(
    ends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LocalStore.delete

    def again(self: LocalStore, key: str, *, if_match: str | None = None) -> None:
        honest(self, key, if_match=if_match)
        if if_match is not None:
            raise NotFound("it is gone")

    monkeypatch.setattr(LocalStore, "delete", again)
    assert delete(job_of(ends)).deleted == len(EXTRA)


def test_a_run_that_is_killed_between_deletes_is_finished_by_the_next(
    ends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = LocalStore.delete

    def killed(self: LocalStore, key: str, **more: Any) -> None:
        if key.endswith("/e2"):
            raise KeyboardInterrupt
        honest(self, key, **more)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            delete(job_of(ends))
    assert "e2" in left(ends)
    result = delete(job_of(ends))
    assert result.state == "succeeded"
    assert result.deleted >= 1
    assert left(ends) == ["a", "sub/b"]


def test_two_at_once_delete_each_object_once(
    ends: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Barrier(2)
    after_listing(monkeypatch, lambda: both.wait(20))
    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(lambda _: delete(job_of(ends)), range(2)))
    assert [result.state for result in results] == ["succeeded", "succeeded"]
    assert left(ends) == ["a", "sub/b"]
    assert set(calls) == set(EXTRA)


def test_rows_of_deletes(ends: Path) -> None:
    rows: list[dict[str, Any]] = []
    job = job_of(ends)
    done = result_of(job, fleet_of("ab"), status("succeeded"))
    delete_extra(job, NONE, done, random.Random(1), rows.append)
    assert {row["state"] for row in rows} == {"deleted"}
    assert sorted(row["destination"].rpartition("/out/")[2] for row in rows) == sorted(EXTRA)


def test_a_destination_above_its_source_is_refused(ends: Path, calls: list[str]) -> None:
    job = replace(job_of(ends), destination=Location(f"{ends}/"))
    with pytest.raises(ConfigurationInvalid, match="a sync with deletes out of"):
        check_extra(job, NONE, random.Random(1))
    result = delete(job)
    assert (result.state, result.error_code) == ("failed", ConfigurationInvalid.code)
    link = ends.parent / f"{ends.name}-link"
    link.symlink_to(ends)
    with pytest.raises(ConfigurationInvalid):
        check_extra(replace(job, destination=Location(f"{link}/")), NONE, random.Random(1))
    assert calls == []


def test_a_source_that_may_only_be_listed_by_prefix(
    ends: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 then refuses a look at a missing key."""
    honest = LocalStore.head

    def head(self: LocalStore, key: str) -> ObjectInfo:
        if "/in/" in key:
            raise PermissionDenied("403")
        return honest(self, key)

    monkeypatch.setattr(LocalStore, "head", head)
    after_listing(monkeypatch, lambda: write(ends / "in/e0"))
    assert delete(job_of(ends)).deleted == 3
    assert left(ends) == ["a", "e0", "sub/b"]


#: Pattern of `exclude` -> what becomes of `out/tmp/stale`: `spared`, `stop` or `warning`.
PATTERNS = {
    "tmp": "stop",
    "/tmp": "stop",
    "t?p": "stop",
    "tmp/": "spared",
    "/tmp/": "spared",
    "tmp/*": "spared",
    "/tmp/**": "spared",
    "*/": "spared",
    "*.bak": "warning",
    "stale": "warning",
    "./tmp/*": "warning",
    "tmp\\*": "warning",
    " tmp/": "warning",
    "tmp/\n": "warning",
    "/nightly/": "warning",
}


@pytest.mark.parametrize(("pattern", "becomes"), PATTERNS.items())
def test_a_pattern_protects_or_its_user_is_told(ends: Path, pattern: str, becomes: str) -> None:
    stale = ends / "out/tmp/stale"
    write(stale)
    job = job_of(ends, exclude=(pattern, "a"))
    if becomes == "stop":
        for call in (
            lambda: check_extra(job, NONE, random.Random(1)),
            lambda: preview_extra(job, NONE),
        ):
            with pytest.raises(ConfigurationInvalid, match="would not spare 'tmp/stale'; write"):
                call()
        result = delete(job)
        assert (result.state, result.error_code) == ("failed", ConfigurationInvalid.code)
        assert set(left(ends)) == {"a", "sub/b", "tmp/stale", *EXTRA}
        job = replace(job, allow_unmatched_patterns=True)
    plan, _ = preview_extra(job, NONE)
    assert plan.warnings == check_extra(job, NONE, random.Random(1)).warnings
    result = delete(job)
    assert result.state == "succeeded"
    assert [repr(pattern) in one for one in plan.warnings] == [True] * (becomes != "spared")
    assert result.warnings[: len(plan.warnings)] == plan.warnings
    assert stale.exists() == (becomes == "spared")


@pytest.mark.parametrize("folder", [".skyplane", "sub/.skyplane"])
def test_own_objects_are_spared_whatever_a_pattern_misses(ends: Path, folder: str) -> None:
    """Such as the journal of a run that failed: it stops no nightly job."""
    write(ends / "out" / folder / "jobs/key/1")
    assert delete(job_of(ends, exclude=(folder, "a"))).state == "succeeded"
    assert (ends / "out" / folder / "jobs/key/1").exists()
    write(ends / "out" / folder.replace(".", "x") / "jobs/key/1")
    with pytest.raises(ConfigurationInvalid, match="would not spare"):
        check_extra(job_of(ends, exclude=(folder.replace(".", "?"),)), NONE, random.Random(1))


@pytest.mark.parametrize("end", ["in", "out"])
def test_a_folder_at_either_end_tells_that_a_pattern_misses_it(ends: Path, end: str) -> None:
    write(ends / end / "tmp/stale")
    with pytest.raises(ConfigurationInvalid, match="'tmp/stale'"):
        check_extra(job_of(ends, exclude=("tmp",)), NONE, random.Random(1))
    write(ends / ("out" if end == "in" else "in") / "tmp")
    assert check_extra(job_of(ends, exclude=("tmp",)), NONE, random.Random(1)).warnings == ()


@pytest.mark.parametrize("pattern", ["tmp", "tmp/", "/tmp/**"])
def test_an_empty_folder_stops_no_nightly_job(ends: Path, pattern: str) -> None:
    for end in ("in", "out"):
        (ends / end / "tmp").mkdir()
    result = delete(job_of(ends, exclude=(pattern,)))
    assert (result.state, result.deleted) == ("succeeded", 4)
    assert repr(pattern) in result.warnings[0]


def test_a_folder_that_the_listing_skips_for_a_pattern_is_its_match(ends: Path) -> None:
    bad = os.fsdecode(b"bad-\xff")
    write(ends / "in/skipped" / bad)
    job = job_of(ends, exclude=("skipped/", "none/"))
    listing = SourceListing()
    for _ in range(2):  # The second time from memory.
        plan = check_extra(job, NONE, random.Random(1), listing)
        assert ["'skipped/'" in one for one in plan.warnings] == [False]
    handed = listing.hand_over(job)
    assert handed is not None
    assert [key.endswith(f"skipped/{bad}") for key in handed.skipped] == [True]


def test_a_folder_that_comes_during_the_copies_stops_the_deletes(ends: Path) -> None:
    job = job_of(ends, exclude=("tmp",))
    assert check_extra(job, NONE, random.Random(1)).objects == 4
    write(ends / "in/tmp/new")
    result = delete(job)
    assert (result.state, result.deleted) == ("failed", 0)
    assert "'tmp/new'" in result.error
