"""Ctrl-C and SIGTERM: the first ends the work, none of them silently skips the teardown."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Turns signals into KeyboardInterrupt, in the main thread, while it is entered.

    The first one raises, so that whoever holds a fleet takes it down. During that the second
    only says what is going on. The third raises again: the user wants out, and is told what
    is left.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 2:
            sys.stderr.write(
                "skyplane-orch: still cleaning up; interrupt once more to leave the gateways"
                " to the end of their lease\n"
            )
            return
        raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # nohup and shells without job control ignore signals on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
