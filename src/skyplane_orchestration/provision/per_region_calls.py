"""Calls for many regions of a cloud, of which some may not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.parallel import in_parallel

T = TypeVar("T")


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

    found = in_parallel([partial(attempt, region) for region in dict.fromkeys(regions)])
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
