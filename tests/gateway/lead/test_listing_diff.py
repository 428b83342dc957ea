from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import NotFound, StoreUnavailable
from skyplane_gateway.common.job_options import ConflictRule
from skyplane_gateway.common.objects import ObjectInfo, StoreSpec
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.lead.listing_diff import ListingDiff
from skyplane_gateway.lead.object_report import Counters
from skyplane_gateway.selection.difference import Ends
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.selection.selector import Selection, select
from skyplane_gateway.stores import escape_name


class Destination:
    """Answers pages, and remembers how many were asked for."""

    def __init__(self, keys: list[str], page_objects: int) -> None:
        self.rows = [ObjectInfo(key, 1, "there", 0.0) for key in sorted(keys)]
        self.page_objects = page_objects
        self.pages = 0

    def below(self, prefix: str) -> Iterator[ObjectInfo]:
        return (row for row in self.rows if row.key.startswith(prefix))

    def ends(self) -> Ends:
        return Ends()

    async def ask(self, asked: Any) -> Any:
        raise AssertionError(f"the listings tell all of {asked}")

    async def fetch_page(
        self, prefix: str, start_after: str | None
    ) -> tuple[list[ObjectInfo], bool]:
        self.pages += 1
        await asyncio.sleep(0)
        rows = [row for row in self.below(prefix) if row.key > (start_after or "")]
        return rows[: self.page_objects], len(rows) > self.page_objects


class FakeSource:
    """Lists what it is given, without threads."""

    def __init__(self, list_prefix: Callable[[str], Any]) -> None:
        self._list = list_prefix

    def list(self, prefix: str, wants: Any) -> Any:
        return self._list(prefix)

    async def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)


def diff_of(
    rule: SelectionRule,
    source: Callable[[str], Any],
    there: Destination,
    *,
    kind: str = "memory",
    counters: Counters | None = None,
) -> ListingDiff:
    spec = TransferSpec(
        StoreSpec("memory", "a"),
        StoreSpec(kind, "b/c"),
        rule.source_prefix,
        rule.destination_prefix,
    )
    context: Any = SimpleNamespace(
        spec=spec,
        source=FakeSource(source),
        report=SimpleNamespace(counters=counters or Counters()),
    )
    return ListingDiff(context, rule, cast("Any", there))


def listed(
    rule: SelectionRule, source: Callable[[str], Any], there: Destination, *, kind: str = "memory"
) -> list[Selection]:
    async def collect() -> list[Selection]:
        return [row async for row in diff_of(rule, source, there, kind=kind).selections()]

    return asyncio.run(collect())


@pytest.fixture(scope="module", autouse=True)
def small_steps() -> Iterator[None]:
    """So that a listing of a few keys has several steps, and some that are just full."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("skyplane_gateway.lead.listing_diff._STEP_OBJECTS", 5)
        yield


names = st.lists(st.integers(0, 90).map(lambda n: f"{n:03}"), max_size=60, unique=True)


@given(names, names, st.integers(1, 50), st.sampled_from(["fail", "skip", "replace"]))
@settings(deadline=None, max_examples=40)
def test_it_joins_both_listings(
    here: list[str], there: list[str], page_objects: int, conflict: ConflictRule
) -> None:
    rule = SelectionRule("p/", "q/", conflict=conflict)
    rows = [ObjectInfo(f"p/{name}", 1, "here", 0.0) for name in sorted(here)]
    destination = Destination([f"q/{name}" for name in there], page_objects)
    wanted = list(select(rule, lambda _: iter(rows), destination.below))
    assert listed(rule, lambda _: iter(rows), destination) == wanted


async def test_objects_that_the_filters_leave_out_count_as_listed() -> None:
    """A lead that lists millions of such keys makes progress, and its fleet must live on."""
    rows = [ObjectInfo(f"p/{number:04}", 1, "e", 0.0) for number in range(1000)]
    counters = Counters()
    rule = SelectionRule("p/", "q/", include=("0999",))
    listing = diff_of(rule, lambda _: iter(rows), Destination([], 10), counters=counters)
    assert [row.source.key async for row in listing.selections()] == ["p/0999"]
    assert counters.listed == 1000


def test_an_empty_source_needs_no_listing_of_the_destination() -> None:
    destination = Destination(["q/a"], 10)
    assert listed(SelectionRule("p/", "q/"), lambda _: iter(()), destination) == []
    assert destination.pages == 0


def test_a_single_object_and_one_that_is_missing() -> None:
    rule = SelectionRule("p/a", "q/b", recursive=False, conflict="skip")
    destination = Destination(["q/b"], 10)
    info = ObjectInfo("p/a", 1, "here", 0.0)
    (row,) = listed(rule, lambda _: iter([info]), destination)
    assert (row.action, row.destination_key) == ("skip", "q/b")
    with pytest.raises(NotFound):
        listed(rule, lambda _: iter(()), destination)


def test_a_listing_that_breaks_off_is_an_error() -> None:
    def broken(prefix: str) -> Iterator[ObjectInfo]:
        yield ObjectInfo("p/a", 1, "here", 0.0)
        raise StoreUnavailable("503")

    with pytest.raises(StoreUnavailable):
        listed(SelectionRule("p/", "q/"), broken, Destination([], 10))


@given(names, names, st.integers(1, 50))
@settings(deadline=None, max_examples=20)
def test_escaped_keys_are_looked_up_alone(
    here: list[str], there: list[str], page_objects: int
) -> None:
    """Azure holds no backslash."""

    def named(name: str) -> str:
        return name.replace("1", "\\")

    escape = partial(escape_name, "azure")
    rule = SelectionRule("p/", "q/", on_illegal_key="escape")
    rows = [ObjectInfo(f"p/{name}", 1, "here", 0.0) for name in sorted(map(named, here))]
    keys = [f"q/{escape('q/', named(name), 1)}" for name in there]
    destination = Destination(keys, page_objects)
    wanted = list(select(rule, lambda _: iter(rows), destination.below, escape_name=escape))
    assert any(row.is_escaped for row in wanted) == any("1" in name for name in here)
    assert listed(rule, lambda _: iter(rows), destination, kind="azure") == wanted
