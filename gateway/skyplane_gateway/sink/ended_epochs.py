"""The epochs that are over at this gateway, so that late orders of one are told from new ones."""

from __future__ import annotations


class EndedEpochs:
    """By transfer key."""

    def __init__(self) -> None:
        #: The newest that is over, and the newest whose success was acknowledged; 0 for none.
        self._newest: dict[str, tuple[int, int]] = {}

    def note(self, key: str, epoch: int, *, is_heard: bool = False) -> None:
        """An epoch is over. `is_heard`: an orchestrator has acknowledged its success."""
        over, heard = self._newest.get(key, (0, 0))
        self._newest[key] = (max(over, epoch), max(heard, epoch) if is_heard else heard)

    def rows(self) -> dict[str, dict[str, int]]:
        """Transfer key -> the newest epoch that is over (`epoch`) and acknowledged (`heard`)."""
        return {key: {"epoch": over, "heard": heard} for key, (over, heard) in self._newest.items()}
