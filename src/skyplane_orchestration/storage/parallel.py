"""Parallel work on a stream of items, with a bound on those in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_parallel(
    items: Iterable[T], work: Callable[[T], R], parallel: int
) -> Iterator[tuple[T, R]]:
    """Each item with the result of `work`, in order; raises the errors of `work`.

    At most `2 * parallel` items are in flight, so the iterable may be endless.
    """
    in_flight: deque[tuple[T, Future[R]]] = deque()
    with ThreadPoolExecutor(parallel, thread_name_prefix="parallel") as threads:
        for item in items:
            in_flight.append((item, threads.submit(work, item)))
            if len(in_flight) == 2 * parallel:
                first, future = in_flight.popleft()
                yield first, future.result()
        for first, future in in_flight:
            yield first, future.result()
