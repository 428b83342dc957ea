"""How far a transfer is, on stderr: a bar for a person, a line now and then for a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from skyplane_orchestration.cli.terminal import Terminal

if TYPE_CHECKING:
    from skyplane_orchestration.fleet import Fleet
    from skyplane_orchestration.outcome import TransferStatus

#: Seconds between two lines of a log.
_EVERY_S: Final = 10.0


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
    regions = len({gateway.region for gateway in fleet.gateways})
    return (
        f"fleet {fleet.key}: {len(fleet.gateways)} gateways in {regions} regions"
        f" up in {fleet.provision_s:.1f} s"
    )


def _status_line(status: TransferStatus) -> str:
    from skyplane_orchestration.cli.render import earlier, size

    more = "" if status.listed else " so far"
    return (
        f"{status.state}: {status.copied} of {status.objects} objects"
        f"{earlier(status.copied_earlier)},"
        f" {size(status.copied_bytes)} of {size(status.size_bytes)}{more}"
    )


class Lines:
    """One line per stage, then one every ten seconds."""

    def __init__(self, terminal: Terminal, clock: Callable[[], float] = time.monotonic) -> None:
        self._terminal = terminal
        self._clock = clock
        self._next_s: float | None = None
        self.has_fleet = False

    def on_fleet(self, fleet: Fleet) -> None:
        self.has_fleet = True
        self._terminal.say(_fleet_line(fleet))

    def on_status(self, status: TransferStatus) -> None:
        now = self._clock()
        if self._next_s is None or now >= self._next_s or not status.is_running:
            self._next_s = now + _EVERY_S
            self._terminal.say(_status_line(status))

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
        self.has_fleet = False

    def on_fleet(self, fleet: Fleet) -> None:
        self.has_fleet = True
        self._terminal.say(_fleet_line(fleet))
        self._bar.start()

    def on_status(self, status: TransferStatus) -> None:
        self._bar.update(
            self._task,
            description=f"{status.copied}/{status.objects} objects",
            completed=status.copied_bytes,
            total=status.size_bytes if status.listed else None,
        )

    def stop(self) -> None:
        self._bar.stop()
