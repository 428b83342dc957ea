"""Answers that are asked for once, also by threads that need them at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Key -> answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[K, threading.Lock] = {}
        self._known: dict[K, V] = {}

    def get(self, key: K, ask: Callable[[], V]) -> V:
        """The answer for a key; other threads wait while one asks. An error is not kept."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = ask()
            return self._known[key]
