"""Calls at the same time, for verbs that wait for other machines or for regions of a cloud."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from skyplane_orchestration.errors import CloudUnavailable, SkyplaneError

A = TypeVar("A")
T = TypeVar("T")

log = logging.getLogger(__name__)

#: Calls at the same time. A fleet has at most 8 instances per region, by default.
_PARALLEL_CALLS: Final = 16


def in_parallel(items: Iterable[A], work: Callable[[A], T]) -> list[T]:
    """The results of `work` for all items, in order. Raises its first error after all have ended.

    An interruption waits for the calls that run, and begins no other one.
    """
    rows = tuple(items)
    if len(rows) <= 1:
        return [work(one) for one in rows]
    threads = ThreadPoolExecutor(_PARALLEL_CALLS, thread_name_prefix="provision")
    try:
        futures = [threads.submit(work, one) for one in rows]
        errors = [error for future in futures if (error := future.exception()) is not None]
    finally:
        threads.shutdown(cancel_futures=True)
    for other in errors[1:]:
        if isinstance(other, SkyplaneError):
            log.error("%s", other)
    return [future.result() for future in futures]


def in_background(work: Callable[[], T]) -> Future[T]:
    """The result of a call that may hang; unlike those of a pool, no exit waits for its thread."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)

    threading.Thread(target=run, name="background", daemon=True).start()
    return future


def in_regions(regions: Iterable[str], work: Callable[[str], T]) -> list[T]:
    """The results of `work` for each region, all at once. Raises its first error.

    CloudUnavailable names all regions that do not answer.
    """
    silent: dict[str, CloudUnavailable] = {}

    def attempt(region: str) -> tuple[T, ...]:
        try:
            return (work(region),)
        except CloudUnavailable as error:
            silent[region] = error
            return ()

    found = in_parallel(dict.fromkeys(regions), attempt)
    for error in silent.values():
        error.regions = tuple(sorted(silent))
        raise error
    return [result for results in found for result in results]


class InRegion(Protocol):
    @property
    def region(self) -> str: ...


Item = TypeVar("Item", bound=InRegion)


def each_region(items: Iterable[Item], work: Callable[[str, Sequence[Item]], T]) -> list[T]:
    """The results of `work` for each region and its items. Raises as `in_regions`."""
    by_region: dict[str, list[Item]] = {}
    for item in items:
        by_region.setdefault(item.region, []).append(item)
    return in_regions(by_region, lambda region: work(region, by_region[region]))


def answered(
    look: Callable[[Sequence[str]], T], regions: Sequence[str]
) -> tuple[T, dict[str, CloudUnavailable]]:
    """What `look` finds in the regions that answer, and the error of each other region.

    Raises CloudUnavailable: no region answers.
    """
    left, silent = tuple(regions), dict[str, CloudUnavailable]()
    while True:
        try:
            return look(left), silent
        except CloudUnavailable as error:
            lost = [region for region in left if region in error.regions]
            silent |= dict.fromkeys(lost, error)
            left = tuple(region for region in left if region not in silent)
            if not lost or not left:
                raise
