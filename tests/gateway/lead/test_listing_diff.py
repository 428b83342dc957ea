from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skyplane_gateway.config import ConflictRule
from skyplane_gateway.errors import NotFound, StoreUnavailable
from skyplane_gateway.lead.listing_diff import Listing
from skyplane_gateway.lead.source_store import SourceCalls
from skyplane_gateway.objects import ObjectInfo
from skyplane_gateway.selection import Selection, SelectionRule, select


class Destination:
    """Answers pages, and remembers how many were asked for."""

    def __init__(self, keys: list[str], page_objects: int) -> None:
        self.rows = [ObjectInfo(key, 1, "there", 0.0) for key in sorted(keys)]
        self.page_objects = page_objects
        self.pages = 0

    def below(self, prefix: str) -> Iterator[ObjectInfo]:
        return (row for row in self.rows if row.key.startswith(prefix))

    async def fetch(self, prefix: str, start_after: str | None) -> tuple[list[ObjectInfo], bool]:
        self.pages += 1
        await asyncio.sleep(0)
        rows = [row for row in self.below(prefix) if row.key > (start_after or "")]
        return rows[: self.page_objects], len(rows) > self.page_objects


def source_calls(threads: Executor) -> SourceCalls:
    """With a store that is never asked but through its listing."""
    store: Any = None
    return SourceCalls(store, threads, stall_deadline_s=1.0, rng=random.Random(1))


def listed(
    inline: Executor, rule: SelectionRule, source: Callable[[str], Any], there: Destination
) -> list[Selection]:
    listing = Listing(
        rule,
        list_source=source,
        fetch_page=there.fetch,
        check_key=lambda key, size_bytes: None,
        in_thread=source_calls(inline).run,
    )

    async def collect() -> list[Selection]:
        return [row async for row in listing.selections()]

    return asyncio.run(collect())


names = st.lists(st.integers(0, 900).map(lambda n: f"{n:03}"), max_size=700, unique=True)


@given(names, names, st.integers(1, 50), st.sampled_from(["fail", "skip", "replace"]))
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_it_is_the_join_of_both_listings(
    inline: Executor, here: list[str], there: list[str], page_objects: int, conflict: ConflictRule
) -> None:
    rule = SelectionRule("p/", "q/", conflict=conflict)
    rows = [ObjectInfo(f"p/{name}", 1, "here", 0.0) for name in sorted(here)]
    destination = Destination([f"q/{name}" for name in there], page_objects)
    wanted = list(select(rule, lambda _: iter(rows), destination.below))
    assert listed(inline, rule, lambda _: iter(rows), destination) == wanted


def test_what_the_filters_leave_out_was_looked_at(inline: Executor) -> None:
    """A lead that reads millions of such keys is at work, and its fleet must live on."""
    rows = [ObjectInfo(f"p/{number:04}", 1, "e", 0.0) for number in range(1000)]
    listing = Listing(
        SelectionRule("p/", "q/", include=("0999",)),
        list_source=lambda _: iter(rows),
        fetch_page=Destination([], 10).fetch,
        check_key=lambda key, size_bytes: None,
        in_thread=source_calls(inline).run,
    )

    async def collect() -> list[Selection]:
        return [row async for row in listing.selections()]

    assert [row.source.key for row in asyncio.run(collect())] == ["p/0999"]
    assert listing.looked_at == 1000


def test_an_empty_source_never_asks_the_destination(inline: Executor) -> None:
    destination = Destination(["q/a"], 10)
    assert listed(inline, SelectionRule("p/", "q/"), lambda _: iter(()), destination) == []
    assert destination.pages == 0


def test_a_single_object_and_one_that_is_missing(inline: Executor) -> None:
    rule = SelectionRule("p/a", "q/b", recursive=False, conflict="skip")
    destination = Destination(["q/b"], 10)
    info = ObjectInfo("p/a", 1, "here", 0.0)
    (row,) = listed(inline, rule, lambda _: iter([info]), destination)
    assert (row.action, row.destination_key) == ("skip", "q/b")
    with pytest.raises(NotFound):
        listed(inline, rule, lambda _: iter(()), destination)


def test_a_listing_that_breaks_off_is_never_a_short_one(inline: Executor) -> None:
    def broken(prefix: str) -> Iterator[ObjectInfo]:
        yield ObjectInfo("p/a", 1, "here", 0.0)
        raise StoreUnavailable("503")

    with pytest.raises(StoreUnavailable):
        listed(inline, SelectionRule("p/", "q/"), broken, Destination([], 10))
