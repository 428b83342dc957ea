"""Calls that run beside a test, in threads that even a test that fails does not leave behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final, TypeVar

from tests.e2e.held_store import PATIENCE_S

#: How often those that go on after a failed test lose their gateways.
_AGAIN_S: Final = 0.5

Result = TypeVar("Result")


class Beside:
    """See the module.

    Args:
        gateways: process ids of all that the calls may have started.
    """

    def __init__(self, gateways: Callable[[], list[int]]) -> None:
        self._gateways = gateways
        self._pool = ThreadPoolExecutor()
        self._calls: list[Future[Any]] = []

    def start(self, call: Callable[[], Result]) -> Future[Result]:
        """Ask what comes of it for its result with a timeout, `PATIENCE_S`."""
        self._calls.append(self._pool.submit(call))
        return self._calls[-1]

    def end(self) -> None:
        """What still runs then waits for something that the test, which failed, would have
        done. It is left without gateways until it gives up."""
        deadline_s = time.monotonic() + PATIENCE_S
        self._pool.shutdown(wait=False, cancel_futures=True)
        while wait(self._calls, _AGAIN_S).not_done:
            assert time.monotonic() < deadline_s, "a call goes on without any gateway"
            for pid in self._gateways():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for error in (call.exception() for call in self._calls if not call.cancelled()):
            if error is not None:
                print(f"a call beside the test ended with {error!r}")
