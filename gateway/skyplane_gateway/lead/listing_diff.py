"""The merge join of both listings: the source is listed here, the destination at a sink.

Both are read in steps, so that memory does not grow with the number of objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.lead.both_ends import BothEnds
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.selection.candidates import (
    Candidate,
    Pair,
    destination_listing_prefix,
    list_candidates,
)
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.questions import open_questions, with_answers
from skyplane_gateway.selection.selection_rule import SelectionRule, is_reserved
from skyplane_gateway.selection.selector import Selection, decide
from skyplane_gateway.stores import check_destination_key, escape_name

#: Keys taken from the source's listing at a time.
_STEP_OBJECTS: Final = 256


class ListingDiff:
    """Selects what to do with every object of the source.

    Counts listed and reserved keys in the report; reserved ones are left out.

    Args:
        on_first: called with the first object, before the destination is listed.
    """

    def __init__(
        self,
        context: TransferContext,
        rule: SelectionRule,
        ends: BothEnds,
        on_first: Callable[[Candidate], None] = lambda _: None,
    ) -> None:
        self._on_first = on_first
        self._rule = rule
        self._ends = ends
        self._source = context.source
        self._kept = context.spec.kept
        self._counters = context.report.counters
        self._kind = context.spec.destination.kind
        self._patterns = PatternUse(rule, context.spec.publish_last)

    async def selections(self) -> AsyncGenerator[Selection, None]:
        """One row for every source object that passes the filters; see `selection.select`."""
        found = list_candidates(self._rule, self._counted, partial(escape_name, self._kind))
        check_key = partial(check_destination_key, self._kind)
        # Opened late: an empty source needs no listing of the destination.
        there: _Pages | None = None
        is_first = True
        while True:
            step = await self._source.run(lambda: list(islice(found, _STEP_OBJECTS)))
            if step and is_first:
                self._on_first(step[0])
                is_first = False
            pairs: list[Pair] = []
            for one in step:
                if one.is_escaped:
                    # Not in the order of the listing, so it is looked up alone.
                    alone = await _Pages(one.key, self._ends).at(one.key)
                    pairs.append((one, alone))
                    continue
                if there is None:
                    prefix = destination_listing_prefix(self._rule, one.key)
                    there = _Pages(prefix, self._ends)
                pairs.append((one, await there.at(one.key)))
            ends = self._ends.ends()
            if asked := open_questions(self._rule, pairs, ends):
                pairs = with_answers(pairs, asked, await self._ends.ask(asked))
            for one, at in pairs:
                yield decide(self._rule, one, at, check_key, ends)
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


class _Pages:
    """A position in the destination's listing that only moves forward."""

    def __init__(self, prefix: str, ends: BothEnds) -> None:
        self._prefix = prefix
        self._ends = ends
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
            page, self._has_more = await self._ends.fetch_page(self._prefix, self._last)
            self._rows.extend(page)
            if page:
                self._last = page[-1].key
