"""Work on many things at once, with few of them in hand."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(
    things: Iterable[T], work: Callable[[T], R], parallel: int
) -> Iterator[tuple[T, R]]:
    """Each thing with what `work` makes of it, in order.

    At most `2 * parallel` are in hand, so an endless iterable is fine. An error of `work`
    comes out where its result would have.
    """
    under_way: deque[tuple[T, Future[R]]] = deque()
    with ThreadPoolExecutor(parallel, thread_name_prefix="side-by-side") as threads:
        for thing in things:
            under_way.append((thing, threads.submit(work, thing)))
            if len(under_way) == 2 * parallel:
                first, future = under_way.popleft()
                yield first, future.result()
        for first, future in under_way:
            yield first, future.result()
