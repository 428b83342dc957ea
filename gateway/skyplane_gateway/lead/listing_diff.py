"""The merge join of both listings: the source is listed here, the destination at a sink.

Both are read in steps, so that memory does not grow with the number of objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from skyplane_gateway.common.kept_properties import KeptProperties
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.lead.object_report import Counters
from skyplane_gateway.lead.source_store import SourceStore
from skyplane_gateway.selection import (
    Candidate,
    ComparisonAnswer,
    ComparisonQuestion,
    Ends,
    EscapeName,
    KeyCheck,
    Pair,
    PatternUse,
    Selection,
    SelectionRule,
    decide,
    destination_listing_prefix,
    is_reserved,
    list_candidates,
    open_questions,
    with_answers,
)

#: Keys taken from the source's listing at a time.
_STEP_OBJECTS: Final = 256

#: A page of the destination: (prefix, key to start after) -> (objects in order, more follow).
FetchPage = Callable[[str, str | None], Awaitable[tuple[list[ObjectInfo], bool]]]
#: As `selection.Ask`.
Ask = Callable[[Sequence[ComparisonQuestion]], Awaitable[list[ComparisonAnswer]]]


class ListingDiff:
    """Selects what to do with every object of the source.

    Args:
        source: listed in threads.
        fetch_page: a page of the destination.
        counters: counts listed and reserved keys; reserved ones are left out.
        kept: see `TransferSpec.kept`.
        ask: answers questions that the listings leave.
        ends: see `select`.
        publish_last: patterns of keys that are copied last.
    """

    def __init__(
        self,
        rule: SelectionRule,
        *,
        source: SourceStore,
        fetch_page: FetchPage,
        check_key: KeyCheck,
        escape_name: EscapeName | None = None,
        counters: Counters,
        kept: KeptProperties,
        ask: Ask,
        ends: Callable[[], Ends] = Ends,
        publish_last: Iterable[str] = (),
    ) -> None:
        self._rule = rule
        self._source = source
        self._fetch_page = fetch_page
        self._check_key = check_key
        self._escape_name = escape_name
        self._counters = counters
        self._kept = kept
        self._ask = ask
        self._ends = ends
        self._patterns = PatternUse(rule, publish_last)

    async def selections(self) -> AsyncGenerator[Selection, None]:
        """One row for every source object that passes the filters; see `selection.select`."""
        found = list_candidates(self._rule, self._counted, self._escape_name)
        # Opened late: an empty source needs no listing of the destination.
        there: _Pages | None = None
        while True:
            step = await self._source.run(_next_step, found)
            pairs: list[Pair] = []
            for one in step:
                if one.is_escaped:
                    # Not in the order of the listing, so it is looked up alone.
                    alone = await _Pages(one.key, self._fetch_page).at(one.key)
                    pairs.append((one, alone))
                    continue
                if there is None:
                    prefix = destination_listing_prefix(self._rule, one.key)
                    there = _Pages(prefix, self._fetch_page)
                pairs.append((one, await there.at(one.key)))
            ends = self._ends()
            if asked := open_questions(self._rule, pairs, ends):
                pairs = with_answers(pairs, asked, await self._ask(asked))
            for one, at in pairs:
                yield decide(self._rule, one, at, self._check_key, ends)
            if len(step) < _STEP_OBJECTS:
                self._counters.unmatched_patterns = self._patterns.unmatched()
                return

    def _counted(self, prefix: str) -> Iterator[ObjectInfo]:
        for row in self._source.list(prefix, self._patterns.wants):
            self._patterns.see(row.key)
            self._counters.listed += 1
            if self._rule.recursive and is_reserved(row.key):
                self._counters.reserved += 1
            yield self._kept.of_source(row)


def _next_step(found: Iterator[Candidate]) -> list[Candidate]:
    return list(islice(found, _STEP_OBJECTS))


class _Pages:
    """A position in the destination's listing that only moves forward."""

    def __init__(self, prefix: str, fetch: FetchPage) -> None:
        self._prefix = prefix
        self._fetch = fetch
        self._rows: deque[ObjectInfo] = deque()
        self._last: str | None = None
        self._has_more = True

    async def at(self, key: str) -> ObjectInfo | None:
        """The object of that key. Keys must come in ascending order."""
        while True:
            while self._rows and self._rows[0].key < key:
                self._rows.popleft()
            if self._rows:
                return self._rows[0] if self._rows[0].key == key else None
            if not self._has_more:
                return None
            page, self._has_more = await self._fetch(self._prefix, self._last)
            self._rows.extend(page)
            if page:
                self._last = page[-1].key
