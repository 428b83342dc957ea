"""How far a transfer is, in bytes delivered: for task logs, pipes and the command's bar."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.formatting import duration, size

if TYPE_CHECKING:
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.status import TransferStatus

#: The rate is that of so many seconds.
_WINDOW_S: Final = 30.0

#: Seconds between the first two lines of a log, and at most between any two.
_FIRST_INTERVAL_S: Final = 2.0
_LONGEST_INTERVAL_S: Final = 60.0


def heading(job: TransferJob) -> str:
    """The first line of whatever logs a transfer."""
    verb = "moving" if job.move else "copying"
    return f"{verb} {job.source.url} to {job.destination.url}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How far a transfer is.

    Attributes:
        done_bytes: delivered to the destination's store, those of objects that are not
            whole yet among them, and what earlier epochs copied.
        total_bytes: of all objects that are to be copied, as far as they are listed.
        bytes_per_s: of late; 0 where nothing can be said yet.
        left_s: seconds to the end at that rate; None where nobody can tell.
    """

    done_bytes: int
    total_bytes: int
    bytes_per_s: float
    left_s: float | None


class Meter:
    """Makes readings from the statuses of one transfer, in their order.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()

    def read(self, status: TransferStatus) -> Reading:
        own = _own_bytes(status)
        total = max(status.size_bytes - status.skipped_bytes - status.failed_bytes, 0)
        done = min(own + status.copied_earlier_bytes, total)
        rate = self._rate(own, status)
        # What is all delivered waits for its commit, and nobody can tell how long.
        is_known = status.listed and status.is_running and rate > 0 and done < total
        return Reading(done, total, rate, (total - done) / rate if is_known else None)

    def _rate(self, own: int, status: TransferStatus) -> float:
        now_s, samples = self._clock(), self._samples
        if samples and own < samples[-1][1]:
            samples.clear()  # Another epoch counts from its own beginning.
        samples.append((now_s, own))
        while len(samples) > 2 and samples[1][0] <= now_s - _WINDOW_S:
            samples.popleft()
        first_s, first = samples[0]
        if now_s > first_s and status.is_running:
            return (own - first) / (now_s - first_s)
        return own / status.seconds if status.seconds > 0 else 0.0


def _own_bytes(status: TransferStatus) -> int:
    """Delivered by the epoch that the status is of.

    Receipts count what is delivered of objects that are not whole yet. What a store holds
    already of an upload that is continued has none, but counts once the object is copied.
    """
    delivered = sum(status.delivered_bytes.values())
    return max(delivered, status.copied_bytes - status.copied_earlier_bytes)


class ProgressLog:
    """Told of every status, logs the first, some at growing intervals, and the last.

    Args:
        log: takes one line.
        clock: monotonic seconds.
    """

    def __init__(
        self, log: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._clock = clock
        self._meter = Meter(clock)
        self._next_s = clock()
        self._interval_s = _FIRST_INTERVAL_S

    def __call__(self, status: TransferStatus) -> None:
        reading = self._meter.read(status)
        now_s = self._clock()
        if status.is_running and now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        self._interval_s = min(2 * self._interval_s, _LONGEST_INTERVAL_S)
        self._log(line_of(status, reading))


def line_of(status: TransferStatus, reading: Reading) -> str:
    """One line: bytes, objects, rate and time left."""
    if status.is_running and not status.objects:
        return "running: listing the source"
    more = "" if status.listed else " so far"
    parts = [
        f"{size(reading.done_bytes)} of {size(reading.total_bytes)}{more}",
        f"{status.copied} of {status.objects} objects",
    ]
    counts = {
        "copied earlier": status.copied_earlier,
        "skipped": status.skipped,
        "failed": status.failed,
        "unfinished": 0 if status.is_running else status.unfinished,
    }
    parts += [f"{count} {what}" for what, count in counts.items() if count]
    if reading.bytes_per_s > 0:
        parts.append(f"{size(reading.bytes_per_s)}/s")
    if reading.left_s is not None:
        parts.append(f"{duration(max(reading.left_s, 1.0))} left")
    return f"{status.state}: {', '.join(parts)}"
