"""SIGINT, SIGTERM and SIGHUP end the command after its teardown."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalHandler:
    """Turns signals into KeyboardInterrupt in the main thread, while it is entered.

    The first signal raises, and the teardown begins. The second prints that the teardown
    still runs. The third raises again and ends the teardown.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, Any] = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count == 2:
            sys.stderr.write(
                "skyplane-orch: still cleaning up; interrupt once more to stop this: the"
                " gateways then run until their lease ends\n"
            )
            return
        raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # nohup and shells without job control ignore signals on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
