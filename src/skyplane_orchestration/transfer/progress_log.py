"""The progress of a transfer: bytes, rate, time left, and log lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.formatting import duration, size, usd

if TYPE_CHECKING:
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.status import TransferStatus

_SYSTEM_CLOCK: Final = Clock()

#: The rate is measured over this window.
_WINDOW_S: Final = 30.0

#: Seconds between the first two lines of a log, and at most between any two.
_FIRST_INTERVAL_S: Final = 2.0
_LONGEST_INTERVAL_S: Final = 60.0


def heading(job: TransferJob) -> str:
    """The first log line of a transfer."""
    verb = "moving" if job.move else "copying"
    return f"{verb} {job.source.url} to {job.destination.url}"


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a transfer at one moment.

    Attributes:
        done_bytes: delivered to the destination's store. Parts of unfinished objects and objects
            of earlier epochs are included, and what has arrived of each part.
        total_bytes: of all listed objects to copy.
        bytes_per_s: recent rate; 0 when not known yet.
        left_s: seconds to the end at that rate; None when not known.
    """

    done_bytes: int
    total_bytes: int
    bytes_per_s: float
    left_s: float | None


class ProgressMeter:
    """Measures the progress from the statuses of one transfer, in their order."""

    def __init__(self, clock: Clock = _SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()

    def measure(self, status: TransferStatus) -> Progress:
        # Without parts that an earlier epoch has uploaded.
        delivered = sum(status.delivered_bytes.values())
        own = max(delivered, status.copied_bytes - status.copied_earlier_bytes)
        own += status.moving_bytes
        total = max(status.size_bytes - status.skipped_bytes - status.failed_bytes, 0)
        done = min(own + status.copied_earlier_bytes, total)
        rate = self._rate(own, status)
        # The time of the last commits is not known.
        is_known = status.listed and status.is_running and rate > 0 and done < total
        return Progress(done, total, rate, (total - done) / rate if is_known else None)

    def _rate(self, own: int, status: TransferStatus) -> float:
        now_s, samples = self._clock.monotonic(), self._samples
        if samples and own < samples[-1][1]:
            samples.clear()  # A new epoch counts from zero.
        samples.append((now_s, own))
        while len(samples) > 2 and samples[1][0] <= now_s - _WINDOW_S:
            samples.popleft()
        first_s, first = samples[0]
        if now_s > first_s and status.is_running:
            return (own - first) / (now_s - first_s)
        return own / status.seconds if status.seconds > 0 else 0.0


class ProgressLog:
    """Logs the first status, some at growing intervals, and the last; called with each."""

    def __init__(self, log: Callable[[str], object], clock: Clock = _SYSTEM_CLOCK) -> None:
        self._log = log
        self._clock = clock
        self._meter = ProgressMeter(clock)
        self._next_s = clock.monotonic()
        self._interval_s = _FIRST_INTERVAL_S

    def __call__(self, status: TransferStatus) -> None:
        progress = self._meter.measure(status)
        now_s = self._clock.monotonic()
        if status.is_running and now_s < self._next_s:
            return
        self._next_s = now_s + self._interval_s
        self._interval_s = min(2 * self._interval_s, _LONGEST_INTERVAL_S)
        self._log(line_of(status, progress))


def line_of(status: TransferStatus, progress: Progress) -> str:
    """One line: bytes, objects, rate, time left, and cost."""
    if status.is_running and not status.objects:
        return "running: listing the source"
    parts = [_done(status, progress), f"{status.copied} of {status.objects} objects"]
    counts = {
        "copied earlier": status.copied_earlier,
        "skipped": status.skipped,
        "failed": status.failed,
        "unfinished": 0 if status.is_running else status.unfinished,
    }
    parts += [f"{count} {what}" for what, count in counts.items() if count]
    parts += _rate(progress)
    if progress.left_s is not None:
        parts.append(f"{duration(max(progress.left_s, 1.0))} left")
    if cost := cost_in_words(status):
        parts.append(cost)
    return f"{status.state}: {', '.join(parts)}"


def amount_of(status: TransferStatus, progress: Progress) -> str:
    """`12.0 MiB of 400.0 MiB, 3.1 MiB/s`; without the rate while it is not known."""
    return ", ".join((_done(status, progress), *_rate(progress)))


def _done(status: TransferStatus, progress: Progress) -> str:
    more = "" if status.listed else " so far"
    return f"{size(progress.done_bytes)} of {size(progress.total_bytes)}{more}"


def _rate(progress: Progress) -> tuple[str, ...]:
    return (f"{size(progress.bytes_per_s)}/s",) if progress.bytes_per_s > 0 else ()


def cost_in_words(status: TransferStatus) -> str:
    """The cost so far beside the plan's estimate; empty while there is none."""
    if status.cost is None or not status.cost.total_usd > 0:
        return ""
    spent = f"cost so far {usd(status.cost.total_usd)}"
    return spent if not status.estimated_usd else f"{spent} of about {usd(status.estimated_usd)}"
