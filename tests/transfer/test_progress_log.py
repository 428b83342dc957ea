"""Progress in bytes delivered: on the terminal, in pipes and in task logs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.result import CostOutcome
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.progress_log import ProgressLog, ProgressMeter, heading

MIB = 1 << 20
STATUS = replace(
    TransferStatus("k", 1), listed=True, objects=10, size_bytes=400 * MIB, unfinished=10
)


class Time:
    now_s = 100.0

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now_s)


@pytest.fixture
def time() -> Time:
    return Time()


def changed(**changes: Any) -> TransferStatus:
    """What did not end is unfinished."""
    names = ("copied", "skipped", "failed")
    ended = sum(changes.get(name, 0) for name in names)
    return replace(STATUS, **changes, unfinished=changes.get("objects", STATUS.objects) - ended)


def delivered(mib: int, **changes: Any) -> TransferStatus:
    """So much has a receipt, over two routes."""
    counts = {1: mib * MIB - mib * MIB // 4, 2: mib * MIB // 4}
    return changed(delivered_bytes=counts, **changes)


def test_bytes_count_before_their_object_is_whole(time: Time) -> None:
    meter = ProgressMeter(time.clock)
    assert meter.measure(STATUS).done_bytes == 0
    time.now_s += 2.0
    progress = meter.measure(delivered(100, objects=1))
    assert (progress.done_bytes, progress.total_bytes) == (100 * MIB, 400 * MIB)
    assert progress.bytes_per_s == pytest.approx(50 * MIB)
    assert progress.left_s == pytest.approx(6.0)


def test_what_has_arrived_of_unfinished_chunks_counts(time: Time) -> None:
    meter = ProgressMeter(time.clock)
    assert meter.measure(replace(STATUS, moving_bytes=0)).done_bytes == 0
    for second in range(1, 9):
        time.now_s += 1.0
        progress = meter.measure(replace(STATUS, moving_bytes=second * MIB, seconds=float(second)))
        assert (progress.done_bytes, progress.bytes_per_s) == (second * MIB, MIB)
    # Their receipts change nothing.
    time.now_s += 1.0
    assert meter.measure(delivered(9)).bytes_per_s == MIB


def test_the_rate_is_that_of_the_last_seconds(time: Time) -> None:
    meter = ProgressMeter(time.clock)
    joined = meter.measure(delivered(80, seconds=8.0))
    assert joined.bytes_per_s == pytest.approx(10 * MIB)
    for second in range(1, 100):
        time.now_s += 1.0
        progress = meter.measure(delivered(80 + 2 * second, seconds=8.0 + second))
    assert progress.bytes_per_s == pytest.approx(2 * MIB)
    for _ in range(31):
        time.now_s += 1.0
        progress = meter.measure(delivered(80 + 2 * second))
    assert (progress.bytes_per_s, progress.left_s) == (0.0, None), "it stands still"


def test_skipped_and_failed_bytes_are_not_in_the_total(time: Time) -> None:
    status = delivered(50, skipped=5, skipped_bytes=200 * MIB, failed=1, failed_bytes=100 * MIB)
    progress = ProgressMeter(time.clock).measure(status)
    assert (progress.done_bytes, progress.total_bytes) == (50 * MIB, 100 * MIB)


def test_earlier_bytes_count_as_done_but_not_for_the_rate(time: Time) -> None:
    earlier: dict[str, Any] = {"copied_earlier": 4, "copied_earlier_bytes": 100 * MIB}
    status = delivered(20, copied=5, copied_bytes=120 * MIB, seconds=2.0, **earlier)
    progress = ProgressMeter(time.clock).measure(status)
    assert progress.done_bytes == 120 * MIB
    assert progress.bytes_per_s == pytest.approx(10 * MIB)


def test_a_new_lead_counts_from_its_own_beginning(time: Time) -> None:
    meter = ProgressMeter(time.clock)
    meter.measure(delivered(100))
    time.now_s += 1.0
    assert meter.measure(delivered(1, epoch=2, seconds=0.5)).bytes_per_s == pytest.approx(2 * MIB)


def test_an_object_that_was_delivered_twice_counts_once(time: Time) -> None:
    progress = ProgressMeter(time.clock).measure(delivered(410, seconds=1.0))
    assert (progress.done_bytes, progress.left_s) == (400 * MIB, None)


def test_a_log_has_the_first_line_some_and_the_last(time: Time) -> None:
    lines: list[str] = []
    progress = ProgressLog(lines.append, time.clock)
    for second in range(600):
        progress(delivered(second // 2))
        time.now_s += 1.0
    assert 10 <= len(lines) <= 18
    progress(delivered(400, state="succeeded", copied=10, copied_bytes=400 * MIB, seconds=600.0))
    assert lines[0] == "running: 0 B of 400.0 MiB, 0 of 10 objects"
    assert lines[1] == (
        "running: 1.0 MiB of 400.0 MiB, 0 of 10 objects, 512.0 KiB/s, 13 min 18 s left"
    )
    assert lines[-1] == "succeeded: 400.0 MiB of 400.0 MiB, 10 of 10 objects, 682.7 KiB/s"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"listed": False, "copied": 3, "copied_earlier": 2, "skipped": 4, "failed": 1},
            "running: 0 B of 400.0 MiB so far, 3 of 10 objects, 2 copied earlier, 4 skipped, "
            "1 failed",
        ),
        ({"objects": 0, "size_bytes": 0, "listed": False}, "running: listing the source"),
        (
            {"state": "failed", "copied": 3, "failed": 1},
            "failed: 0 B of 400.0 MiB, 3 of 10 objects, 1 failed, 6 unfinished",
        ),
    ],
)
def test_a_line_has_all_counts(time: Time, changes: dict[str, Any], line: str) -> None:
    lines: list[str] = []
    ProgressLog(lines.append, time.clock)(changed(**changes))
    assert lines == [line]


def test_the_cost_stands_beside_the_estimate(time: Time) -> None:
    lines: list[str] = []
    log = ProgressLog(lines.append, time.clock)
    cost = CostOutcome(egress_usd=1.0, instance_usd=0.25, request_usd=0.0)
    for estimated_usd in (2.5, None):
        log(changed(state="succeeded", copied=10, cost=cost, estimated_usd=estimated_usd))
    assert lines[0].endswith(", cost so far $1.25 of about $2.50")
    assert lines[1].endswith(", cost so far $1.25")


def test_the_heading_names_both_ends() -> None:
    job = TransferJob(Location("s3://a/x/"), Location("s3://b/y/"))
    assert heading(job) == "copying s3://a/x/ to s3://b/y/"
    assert heading(replace(job, move=True)) == "moving s3://a/x/ to s3://b/y/"
