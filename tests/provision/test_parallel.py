"""Calls at the same time."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from skyplane_orchestration.provision import parallel
from skyplane_orchestration.provision.parallel import in_parallel


def test_results_are_in_order_and_the_first_error_comes_after_all_have_ended() -> None:
    assert in_parallel(range(20), partial(pow, 2))[19] == 2**19
    ended: list[int] = []

    def fail(number: int) -> None:
        ended.append(number)
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        in_parallel(range(3), fail)
    assert sorted(ended) == [0, 1, 2]


def test_an_interruption_begins_no_further_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that began after Ctrl-C would be undone by nobody."""
    begun: list[int] = []
    main = threading.get_ident()
    submitted, released = threading.Semaphore(0), threading.Event()

    class Releasing(ThreadPoolExecutor):
        """Calls that run end once nothing more can begin."""

        def submit(self, *arguments: Any, **more: Any) -> Future[Any]:
            future = super().submit(*arguments, **more)
            submitted.release()
            return future

        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            released.set()
            super().shutdown(wait=wait)

    def call(number: int) -> None:
        begun.append(number)
        if number == 0:
            for _ in range(40):
                submitted.acquire()
            # A signal right before a wait does not end it, so another one follows.
            while not released.wait(0.01):
                signal.pthread_kill(main, signal.SIGUSR1)
        released.wait()

    interrupted: list[bool] = []

    def interrupt(*_: object) -> None:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "ThreadPoolExecutor", Releasing)
    # A shell may have started the tests without SIGINT.
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            in_parallel(range(40), call)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(begun) <= 16
