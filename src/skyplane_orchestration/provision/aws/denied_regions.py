"""Searches of all regions, of which a policy of the organisation may deny some."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from skyplane_orchestration.errors import CloudAccessDenied, CloudUnavailable
from skyplane_orchestration.provision.regions import in_regions

if TYPE_CHECKING:
    from skyplane_orchestration.provision.aws.options import AwsOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Names the limit of a denied region in plans.
DENIED: Final = "the regions that the credentials for aws may use"


class DeniedRegions:
    """Passes over regions that refuse a search. Threads may share it.

    The setting `regions` names regions that must answer. Without it the account's regions are
    searched, and AWS lists those too that a policy denies.

    Attributes:
        all_regions: those of the account; a search has at least these.
        used: regions in which this worker has prepared a fleet; they must answer.
    """

    def __init__(self, options: AwsOptions) -> None:
        self._are_named = options.regions is not None
        self.all_regions: frozenset[str] = frozenset()
        self.used: set[str] = set()
        self._told: set[str] = set()
        # A search is repeated without the regions that have not answered.
        self._silent: set[str] = set()

    def search(self, regions: Sequence[str], look: Callable[[str], Sequence[T]]) -> tuple[T, ...]:
        """What `look` finds in each region.

        Raises CloudAccessDenied: the regions are not all of the account, or see `passed_over`.
        """
        if self.all_regions and self.all_regions <= {*regions, *self._silent}:
            found = list(self.passed_over(regions, look).values())
        else:
            found = in_regions(regions, look)
        return tuple(one for rows in found for one in rows)

    def passed_over(self, regions: Sequence[str], work: Callable[[str], T]) -> dict[str, T]:
        """Region -> the result of `work`, without regions that deny it.

        Raises CloudAccessDenied: all regions do, or one that must answer. CloudUnavailable names
        the regions that do not answer.
        """

        def attempt(region: str) -> tuple[str, T | CloudAccessDenied]:
            try:
                return region, work(region)
            except CloudAccessDenied as error:
                return region, error

        found: dict[str, T] = {}
        denied: dict[str, CloudAccessDenied] = {}
        try:
            results = in_regions(regions, attempt)
        except CloudUnavailable as no_answer:
            self._silent.update(no_answer.regions)
            raise
        for region, result in results:
            if isinstance(result, CloudAccessDenied):
                denied[region] = result
            else:
                found[region] = result
        for region, error in denied.items():
            if self._are_named or region in self.used or not found:
                raise error
        self._warn(denied)
        return found

    def _warn(self, denied: Iterable[str]) -> None:
        new = sorted(set(denied) - self._told)
        if new:
            self._told.update(new)
            log.warning(
                "AWS denies %s to these credentials: nothing is searched or planned there;"
                " name the regions that fleets may use in the setting regions of aws",
                ", ".join(new),
            )
