"""Answers that are asked for once."""

from __future__ import annotations

import threading

import pytest
from tests.manual_clock import ManualClock

from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache


def test_threads_at_the_same_time_ask_once() -> None:
    once: AnswerCache[str, int] = AnswerCache()
    asked: list[int] = []
    barrier = threading.Barrier(4)

    def ask() -> int:
        asked.append(1)
        return 7

    def work() -> None:
        barrier.wait()
        assert once.get("key", ask) == 7

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked == [1]


def test_an_error_is_not_kept() -> None:
    once: AnswerCache[str, int] = AnswerCache()
    with pytest.raises(ZeroDivisionError):
        once.get("key", lambda: 1 // 0)
    assert once.get("key", lambda: 7) == 7


def test_an_answer_that_is_too_old_is_asked_for_again() -> None:
    clock = ManualClock()
    once: AnswerCache[str, float] = AnswerCache(300.0, clock.clock)
    answers = []
    for wait_s in (0.0, 299.0, 2.0):
        clock.advance(wait_s)
        answers.append(once.get("key", lambda: clock.now_s))
    assert answers == [1000.0, 1000.0, 1301.0]
