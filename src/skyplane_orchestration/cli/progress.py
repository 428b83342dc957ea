"""How far a transfer is, on stderr: a bar for a person, a line now and then for a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.transfer.progress_log import Meter, ProgressLog

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.status import TransferStatus


class Progress(Protocol):
    """Told what happens; `has_fleet` once there are gateways."""

    has_fleet: bool

    def on_fleet(self, fleet: Fleet) -> None: ...

    def on_status(self, status: TransferStatus) -> None: ...

    def stop(self) -> None:
        """No more news; leaves the terminal in order."""


def progress_on(terminal: Terminal) -> Progress:
    if sys.stderr.isatty() and not terminal.is_quiet:
        return Bar(terminal)
    return Lines(terminal)


def _fleet_line(fleet: Fleet) -> str:
    gateways = counted(len(fleet.gateways), "gateway")
    regions = counted(len({gateway.region for gateway in fleet.gateways}), "region")
    return f"fleet {fleet.key}: {gateways} in {regions} up in {fleet.provision_s:.1f} s"


class Lines:
    """One line per stage, then those of `ProgressLog`."""

    def __init__(self, terminal: Terminal, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal = terminal
        self._log = ProgressLog(terminal.say, clock)
        self.has_fleet = False

    def on_fleet(self, fleet: Fleet) -> None:
        self.has_fleet = True
        self._terminal.say(_fleet_line(fleet))

    def on_status(self, status: TransferStatus) -> None:
        self._log(status)

    def stop(self) -> None:
        pass


class Bar:
    """A progress bar in bytes."""

    def __init__(self, terminal: Terminal) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._terminal = terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=terminal.console(is_for_progress=True),
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._meter = Meter()
        self.has_fleet = False

    def on_fleet(self, fleet: Fleet) -> None:
        self.has_fleet = True
        self._terminal.say(_fleet_line(fleet))
        self._bar.start()

    def on_status(self, status: TransferStatus) -> None:
        reading = self._meter.read(status)
        self._bar.update(
            self._task,
            description=f"{status.copied}/{status.objects} objects",
            completed=reading.done_bytes,
            total=reading.total_bytes if status.listed else None,
        )

    def stop(self) -> None:
        self._bar.stop()
