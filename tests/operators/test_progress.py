"""Progress in the log: not at every poll."""

from __future__ import annotations

from dataclasses import replace

from skyplane_orchestration.operators.progress import ProgressLog
from skyplane_orchestration.outcome import TransferStatus

STATUS = TransferStatus(
    transfer_key="k",
    epoch=1,
    state="running",
    listed=True,
    objects=10,
    size_bytes=4_000_000_000,
    copied=5,
    copied_bytes=2_000_000_000,
    skipped=0,
    failed=1,
    seconds=8.0,
    delivered_bytes={},
    error=None,
    failures=(),
    open_uploads=(),
    unfinished=4,
)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_logs_when_its_time_has_come() -> None:
    clock, lines = Clock(), list[str]()
    progress = ProgressLog(lambda text, *values: lines.append(text % values), 5.0, clock)
    progress(STATUS)
    assert lines == []
    clock.now_s += 5.0
    progress(STATUS)
    progress(STATUS)
    assert lines == ["5 of 10 objects, 2.000 of 4.000 GB, 2.00 Gbit/s, 1 failed"]
    clock.now_s += 4.9
    progress(STATUS)
    assert len(lines) == 1


def test_what_was_copied_earlier_was_not_sent_at_this_rate() -> None:
    clock, lines = Clock(), list[str]()
    progress = ProgressLog(lambda text, *values: lines.append(text % values), 5.0, clock)
    clock.now_s += 5.0
    progress(replace(STATUS, copied_earlier=4, copied_earlier_bytes=1_000_000_000))
    assert lines == ["5 of 10 objects, 2.000 of 4.000 GB, 1.00 Gbit/s, 1 failed"]


def test_says_when_the_listing_goes_on_and_bears_a_transfer_that_has_just_begun() -> None:
    clock, lines = Clock(), list[str]()
    progress = ProgressLog(lambda text, *values: lines.append(text % values), 5.0, clock)
    clock.now_s += 5.0
    progress(replace(STATUS, listed=False, seconds=0.0))
    assert lines == ["5 of 10 or more objects, 2.000 of 4.000 GB, 0.00 Gbit/s, 1 failed"]
