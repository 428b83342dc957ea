"""The listing of a source that the steps of one run share: checks, plan and transfer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.candidates import Lister, list_candidates
from skyplane_gateway.stores import ListedRows, list_from
from skyplane_gateway.stores.base import ObjectStore, Wants
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage.open import rule_of

#: Most rows that are kept, which take about 40 MB; the rest is listed again.
MOST_ROWS: Final = 100_000

#: Rows of a page of a listing.
PAGE_ROWS: Final = 1000

#: Age at which rows are not used any more, from the begin of their listing.
MOST_AGE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Listed:
    """What decides which rows a listing of the source has."""

    source: Location
    recursive: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    files_from: tuple[str, ...] | None

    @classmethod
    def of(cls, job: TransferJob) -> _Listed:
        # The region is filled in during a run.
        source = job.source.at("")
        return cls(source, job.recursive, job.include, job.exclude, job.files_from)


@dataclass(slots=True)
class _Kept:
    what: _Listed
    prefix: str
    began_s: float
    rows: list[ObjectInfo] = field(default_factory=list)
    is_complete: bool = False
    skipped: set[str] = field(default_factory=set)

    @property
    def listed(self) -> ListedRows:
        return ListedRows(self.prefix, tuple(self.rows), self.is_complete, tuple(self.skipped))


class SourceListing:
    """Keeps the rows that a step has listed of a job's source, for the next step of the same run.

    A step gets the same rows as from the store: first those that are kept, then the store lists
    what comes after them. Not thread-safe.

    Attributes:
        begun: a `read_page` that runs in another thread; the steps wait for it.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._kept: _Kept | None = None
        self.begun: Future[None] | None = None

    def read_page(self, job: TransferJob, store: ObjectStore) -> None:
        """Read the first page of what a job selects, for the next step. Raises StoreError."""
        lister = self.lister(job, store, is_first=True)
        deque(islice(list_candidates(rule_of(job), lister), PAGE_ROWS), maxlen=0)

    def lister(
        self,
        job: TransferJob,
        store: ObjectStore,
        through: Callable[[Iterator[ObjectInfo]], Iterator[ObjectInfo]] = iter,
        wants: Wants | None = None,
        *,
        is_first: bool = False,
    ) -> Lister:
        """Lists the source of a job, and keeps the rows that the caller takes.

        Args:
            store: that of the source.
            through: applied to the rows before the caller gets them; it may read ahead.
            wants: that of the job's rule, or one that also counts what it leaves out.
            is_first: it waits for no `begun`.
        """
        what, asked = _Listed.of(job), wants or rule_of(job).wants

        def listed(prefix: str) -> Iterator[ObjectInfo]:
            if not is_first:
                self._await_page()
            kept = self._kept = self._continued(what, prefix)
            count = 0

            def noted(key: str) -> bool:
                is_wanted = asked(key)
                if not is_wanted:
                    kept.skipped.add(key)
                return is_wanted

            for row in through(list_from(store, prefix, kept.listed, noted)):
                if count == len(kept.rows) and count < MOST_ROWS:
                    kept.rows.append(row)
                count += 1
                yield row
            kept.is_complete = count == len(kept.rows)

        return listed

    def _await_page(self) -> None:
        """Who lists next meets its error again."""
        if self.begun is not None:
            self.begun.exception()
            self.begun = None

    def _continued(self, what: _Listed, prefix: str) -> _Kept:
        """What to add rows to; an earlier iteration that is not closed adds none any more."""
        kept = self._fresh
        if kept is None or (kept.what, kept.prefix) != (what, prefix):
            return _Kept(what, prefix, self._clock.monotonic())
        return _Kept(
            what, prefix, kept.began_s, list(kept.rows), kept.is_complete, set(kept.skipped)
        )

    @property
    def _fresh(self) -> _Kept | None:
        kept = self._kept
        is_old = kept is None or self._clock.monotonic() - kept.began_s > MOST_AGE_S
        return None if is_old else kept

    def hand_over(self, job: TransferJob) -> ListedRows | None:
        """The rows of a job's source, which are not kept any more; None where there are none."""
        self._await_page()
        kept, self._kept = self._fresh, None
        return kept.listed if kept is not None and kept.what == _Listed.of(job) else None
