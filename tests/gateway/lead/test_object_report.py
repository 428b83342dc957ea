from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_gateway.common.errors import NotFound, StoreError
from skyplane_gateway.common.objects import UNCONDITIONAL, ObjectInfo
from skyplane_gateway.journal.document import Journal
from skyplane_gateway.journal.state import JournalState
from skyplane_gateway.lead import object_report
from skyplane_gateway.lead.object_report import PAGE_BYTES, Report
from skyplane_gateway.lead.recorder import Recorder
from skyplane_gateway.selection.selector import Selection


def row(source: str, destination: str, size_bytes: int, reason: str = "") -> Selection:
    info = ObjectInfo(source, size_bytes, "", 0.0)
    return Selection(info, destination, None, "copy", reason, UNCONDITIONAL)


class Recorded(Report):
    """A report with the recorder that fills it."""

    def __init__(self) -> None:
        super().__init__()
        state = JournalState(Journal("ab" * 16, 1, "rule", 1))
        self.by = Recorder(self, state, SYSTEM_CLOCK, source_kind="s3", destination_kind="s3")

    def copied(self, row: Selection, not_carried: Iterable[str] = ()) -> None:
        self.by.copied(row, "", 7, 1, not_carried, compared="MD5")


def pages(report: Report) -> list[list[dict[str, Any]]]:
    found, offset, complete = [], 0, False
    while not complete:
        page = report.page(offset)
        found.append(page["rows"])
        assert page["next_offset"] > offset or page["complete"], "the pages must come to an end"
        offset, complete = page["next_offset"], page["complete"]
    return found


def test_rows_over_many_pages_come_once_each_and_in_order() -> None:
    report = Recorded()
    keys = [f"{'k' * 200}/{number}" for number in range(12_000)]
    for number, key in enumerate(keys):
        report.copied(row(key, f"to/{key}", number))
    # Beyond a mebibyte the rows are in a file, not in memory.
    assert report._rows._rolled  # type: ignore[attr-defined]
    found = pages(report)
    assert len(found) >= 5
    assert [row["source"] for page in found for row in page] == keys
    assert all(len(json.dumps(page)) < 2 * PAGE_BYTES for page in found)
    report.close()


def test_a_short_report_stays_in_memory() -> None:
    report = Recorded()
    report.copied(row("a", "b", 1))
    assert not report._rows._rolled  # type: ignore[attr-defined]
    assert pages(report) == [
        [
            {
                "state": "copied",
                "source": "a",
                "destination": "b",
                "bytes": 1,
                "attempts": 1,
                "crc32c": 7,
            }
        ]
    ]
    report.close()


def test_an_empty_report_has_one_empty_page() -> None:
    assert pages(Recorded()) == [[]]


@given(st.lists(st.text(max_size=40), max_size=30), st.integers(0, 300))
@settings(deadline=None)
def test_any_key_fits_any_page(keys: list[str], room_bytes: int) -> None:
    # A page holds at least the longest row: two escaped keys, and the other fields.
    longest = max((len(json.dumps(key)) for key in keys), default=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_report, "PAGE_BYTES", 2 * longest + 120 + room_bytes)
        report = Recorded()
        for key in keys:
            report.copied(row(key, key[::-1], len(key)))
        rows = [row for page in pages(report) for row in page]
        assert [row["source"] for row in rows] == keys
        report.close()


def test_rows_may_be_added_between_two_pages() -> None:
    report = Recorded()
    report.copied(row("a", "a", 1))
    first = report.page(0)
    report.by.skipped(row("b", "b", 1, "it is there"))
    second = report.page(first["next_offset"])
    assert [row["source"] for row in second["rows"]] == ["b"]
    assert second["complete"]


def test_a_write_that_fails_in_its_middle_leaves_the_other_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a full disk, which has room again later."""
    report, write = Report(), tempfile.SpooledTemporaryFile.write

    def fail(file: Any, line: bytes) -> int:
        write(file, line[:5])
        raise OSError("no space left on device")

    report.add("copied", row("a", "a", 1), 1)
    with monkeypatch.context() as full:
        full.setattr(tempfile.SpooledTemporaryFile, "write", fail)
        with pytest.raises(OSError, match="no space"):
            report.add("copied", row("b", "b", 1), 1)
    report.add("copied", row("c", "c", 1), 1)
    assert [found["source"] for page in pages(report) for found in page] == ["a", "c"]


@pytest.mark.parametrize("offset", [-1, -(10**9), 10**9])
def test_an_offset_out_of_range_means_the_nearest_end(offset: int) -> None:
    report = Recorded()
    report.copied(row("a", "a", 1))
    page = report.page(offset)
    assert page["complete"]
    assert len(page["rows"]) == (1 if offset < 0 else 0)
    assert page["next_offset"] == report.page(0)["next_offset"]


def test_counters_and_listed_failures() -> None:
    report = Recorded()
    report.copied(row("a", "a", 5))
    report.by.skipped(row("b", "b", 5, "it is there"))
    for number in range(60):
        report.by.failed(row(f"f{number}", "x", 5), NotFound("gone"), 1)
    counters = report.counters
    assert (counters.copied, counters.copied_bytes, counters.skipped, counters.failed) == (
        1,
        5,
        1,
        60,
    )
    assert (counters.skipped_bytes, counters.failed_bytes) == (5, 300)
    assert len(report.failures) == 50
    assert report.failures[0]["code"] == "not-found"


def test_a_long_reason_is_cut() -> None:
    report = Recorded()
    report.by.failed(row("a", "a", 1), StoreError("x" * (3 * PAGE_BYTES)), 1)
    report.copied(row("b", "b", 1))
    rows = [row for page in pages(report) for row in page]
    assert [row["source"] for row in rows] == ["a", "b"]
    assert len(rows[0]["reason"]) == 2000


def test_attributes_that_copies_lack_are_counted_and_named() -> None:
    report = Recorded()
    report.copied(row("a", "to/a", 1), not_carried={"tags", "expires"})
    report.copied(row("b", "to/b", 1), not_carried=["tags"])
    report.copied(row("c", "to/c", 1))
    assert report.counters.not_carried == 2
    assert report.counters.not_carried_by_name == {"expires": 1, "tags": 2}
    (rows,) = pages(report)
    assert [row.get("not_carried") for row in rows] == [["expires", "tags"], ["tags"], None]
    report.close()


def test_a_long_report_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has no name, so a killed lead leaves nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = Recorded()
    for number in range(10_000):
        report.by.skipped(row(f"{number:0200}", "d", 1, "it is there"))
    assert report.page(0)["complete"] is False
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(0, 20), max_size=40))
def test_it_lists_the_largest_copied_objects(sizes: list[int]) -> None:
    report = Recorded()
    for number, size in enumerate(sizes):
        report.copied(row(f"{number:02}", f"to/{number:02}", size))
    report.by.failed(row("failed", "to/failed", 99), StoreError("no"), 1)
    report.by.skipped(row("skipped", "to/skipped", 99))
    assert [row["bytes"] for row in report.largest] == sorted(sizes, reverse=True)[:10]
    assert all(row["destination"] == f"to/{row['source']}" for row in report.largest)
    report.close()
