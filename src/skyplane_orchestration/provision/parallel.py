"""Calls at the same time, for verbs that wait for other machines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from skyplane_orchestration.errors import SkyplaneError

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

#: Calls at the same time. A fleet has at most 8 instances per region, by default.
_PARALLEL_CALLS: Final = 16


def in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of all calls, in order. Raises the first error after all have ended.

    An interruption waits for the calls that run, and begins no other one.
    """
    if len(calls) <= 1:
        return [call() for call in calls]
    threads = ThreadPoolExecutor(_PARALLEL_CALLS, thread_name_prefix="provision")
    try:
        futures = [threads.submit(call) for call in calls]
        errors = [error for future in futures if (error := future.exception()) is not None]
    finally:
        threads.shutdown(cancel_futures=True)
    for other in errors[1:]:
        if isinstance(other, SkyplaneError):
            log.error("%s", other)
    return [future.result() for future in futures]


def by_group(
    items: Iterable[T], group_of: Callable[[T], Hashable], call: Callable[[T], R]
) -> dict[T, R]:
    """Item -> result. Items of a group are called in turn, and all groups at once.

    Raises as `in_parallel`.
    """
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(group_of(item), []).append(item)

    def call_all(group: Sequence[T]) -> list[tuple[T, R]]:
        return [(item, call(item)) for item in group]

    found = in_parallel([partial(call_all, group) for group in groups.values()])
    return dict(result for results in found for result in results)
