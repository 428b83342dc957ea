"""Answers that are asked for once, also by threads that need them at the same time."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class AnswerCache(Generic[K, V]):
    """Key -> answer.

    Args:
        keep_s: how long an answer is kept.
        clock: tells when it is too old.
    """

    def __init__(self, keep_s: float = math.inf, clock: Clock = SYSTEM_CLOCK) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._lock = threading.Lock()
        self._locks: dict[K, threading.Lock] = {}
        # Answer, and the time after which it is asked for again.
        self._known: dict[K, tuple[V, float]] = {}

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """The answer for a key; other threads wait while one asks. An error is not kept."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            now_s = self._clock.monotonic()
            if key not in self._known or now_s >= self._known[key][1]:
                self._known[key] = ask(), now_s + self._keep_s
            return self._known[key][0]
