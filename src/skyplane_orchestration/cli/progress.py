"""Progress of a transfer on stderr: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.transfer.progress_log import (
    ProgressLog,
    ProgressMeter,
    amount_of,
    cost_in_words,
)

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.model.status import TransferStatus

#: Error code of an interrupted command.
INTERRUPTED_CODE: Final = "interrupted"


class TransferInterrupted(KeyboardInterrupt):
    """A signal ended the command; `result` is what the transfer had done by then."""

    def __init__(self, result: TransferResult | None) -> None:
        super().__init__()
        self.result = result


class TransferProgress:
    """Shows the progress of a transfer and keeps its last status."""

    def __init__(self, job: TransferJob, console: Console) -> None:
        self._job = job
        self._console = console
        has_bar = sys.stderr.isatty() and not console.is_quiet
        self._bar = ProgressBar(console) if has_bar else None
        self._show = self._bar.update if self._bar else ProgressLog(console.info)
        self._fleet: Fleet | None = None
        self._status: TransferStatus | None = None

    @property
    def has_fleet(self) -> bool:
        return self._fleet is not None

    def on_fleet(self, fleet: Fleet) -> None:
        self._fleet = fleet
        regions = counted(len({gateway.region for gateway in fleet.gateways}), "region")
        self._console.info(
            f"fleet {fleet.key}: {fleet.size} in {regions} up in {fleet.provision_s:.1f} s"
        )
        for refused in fleet.plan.refused:
            self._console.info(refused.warning)
        if fleet.plan.refused:
            self._console.info(f"the plan is now {fleet.plan.in_words}")
        if self._bar:
            self._bar.start()

    def on_status(self, status: TransferStatus) -> None:
        self._status = status
        self._show(status)

    def stop(self) -> None:
        """Remove the bar; may be called again."""
        if self._bar:
            self._bar.stop()

    def interruption(self, *, is_left_running: bool = False) -> TransferInterrupted:
        """The error to raise after a signal, with the last known result."""
        if self._fleet is None or self._status is None:
            return TransferInterrupted(None)
        from skyplane_orchestration.transfer.results import result_of

        result = result_of(self._job, self._fleet, self._status)
        if not self._status.is_running:
            return TransferInterrupted(result)
        left = "the transfer continues" if is_left_running else "the transfer is cancelled"
        return TransferInterrupted(
            replace(
                result,
                state="running" if is_left_running else "cancelled",
                error=f"interrupted; {left}, and the counts are the last known ones",
                error_code=INTERRUPTED_CODE,
            )
        )


class ProgressBar:
    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            # In the units of the log; rich's own columns have decimal rates.
            TextColumn("{task.fields[amount]}"),
            TimeRemainingColumn(),
            console=console.rich(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None, amount="")
        self._meter = ProgressMeter()

    def start(self) -> None:
        self._bar.start()

    def update(self, status: TransferStatus) -> None:
        progress = self._meter.measure(status)
        words = (f"{status.copied}/{status.objects} objects", cost_in_words(status))
        self._bar.update(
            self._task,
            description=", ".join(filter(None, words)),
            completed=progress.done_bytes,
            total=progress.total_bytes if status.listed else None,
            amount=amount_of(status, progress),
        )

    def refresh(self) -> None:
        """Draw it now; it draws itself ten times a second."""
        self._bar.refresh()

    def stop(self) -> None:
        self._bar.stop()
