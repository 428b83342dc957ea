"""What a transfer has done so far, for the answer of a run that is interrupted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from skyplane_orchestration.cli.progress import Progress

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.result import TransferResult
    from skyplane_orchestration.model.status import TransferStatus

#: Error code of a run that was told to end.
INTERRUPTED_CODE = "interrupted"


class Interrupted(KeyboardInterrupt):
    """The run was told to end; `result` is what the transfer had done by then."""

    def __init__(self, result: TransferResult | None) -> None:
        super().__init__()
        self.result = result


class SoFar:
    """Passes news on to a progress display and keeps the last of them.

    Args:
        job: what is moved.
        progress: is told everything.
    """

    def __init__(self, job: TransferJob, progress: Progress) -> None:
        self._job = job
        self._progress = progress
        self._fleet: Fleet | None = None
        self._status: TransferStatus | None = None

    def on_fleet(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._progress.on_fleet(fleet)

    def on_status(self, status: TransferStatus) -> None:
        self._status = status
        self._progress.on_status(status)

    def interrupted(self, *, is_left_running: bool = False) -> Interrupted:
        """The interruption with the result as it was last seen, to be raised.

        Args:
            is_left_running: nobody has cancelled the transfer.
        """
        if self._fleet is None or self._status is None:
            return Interrupted(None)
        from skyplane_orchestration.transfer.results import result_of

        result = result_of(self._job, self._fleet, self._status)
        if not self._status.is_running:
            return Interrupted(result)
        left = "the transfer goes on" if is_left_running else "the transfer is cancelled"
        return Interrupted(
            replace(
                result,
                state="running" if is_left_running else "cancelled",
                error=f"interrupted; {left}, and the counts are those last seen",
                error_code=INTERRUPTED_CODE,
            )
        )
