from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.stores import ListedRows
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage import source_listing
from skyplane_orchestration.storage.source_listing import MOST_AGE_S, SourceListing

KEYS = ["p/a", "p/b", "p/c", "p/d"]
JOB = TransferJob(Location("s3://here/p/"), Location("s3://there/"))


@pytest.fixture
def store() -> CountingStore:
    return CountingStore("source-listing", KEYS)


@pytest.fixture
def time() -> ManualClock:
    return ManualClock()


@pytest.fixture
def listing(time: ManualClock) -> SourceListing:
    return SourceListing(time.clock)


def take(
    listing: SourceListing,
    store: CountingStore,
    count: int | None = None,
    job: TransferJob = JOB,
    prefix: str = "p/",
) -> list[str]:
    return [row.key for row in islice(listing.lister(job, store)(prefix), count)]


def test_a_second_step_lists_nothing(listing: SourceListing, store: CountingStore) -> None:
    assert take(listing, store) == KEYS
    assert take(listing, store) == KEYS
    assert store.starts == [None]


def test_a_step_goes_on_where_the_one_before_has_stopped(
    listing: SourceListing, store: CountingStore
) -> None:
    assert take(listing, store, 2) == KEYS[:2]
    assert take(listing, store, 1) == KEYS[:1], "it forgets nothing"
    assert take(listing, store) == KEYS
    assert store.starts == [None, "p/b"]
    assert listing.hand_over(JOB) == ListedRows("p/", tuple(store.list("p/")), is_complete=True)


def test_a_lead_gets_the_rows_once(listing: SourceListing, store: CountingStore) -> None:
    assert listing.hand_over(JOB) is None
    take(listing, store, 3)
    rows = tuple(store.list("p/"))
    assert listing.hand_over(JOB) == ListedRows("p/", rows[:3], is_complete=False)
    assert listing.hand_over(JOB) is None
    store.starts.clear()
    take(listing, store)
    assert store.starts == [None]


def test_old_rows_are_not_used(
    listing: SourceListing, store: CountingStore, time: ManualClock
) -> None:
    take(listing, store)
    time.advance(MOST_AGE_S)
    take(listing, store)
    assert store.starts == [None]
    time.advance(1.0)
    assert listing.hand_over(JOB) is None
    take(listing, store)
    assert store.starts == [None, None]


def test_rows_keep_the_age_of_the_listing_that_they_continue(
    listing: SourceListing, store: CountingStore, time: ManualClock
) -> None:
    take(listing, store, 1)
    time.advance(MOST_AGE_S)
    take(listing, store)
    time.advance(1.0)
    assert listing.hand_over(JOB) is None


@pytest.mark.parametrize(
    "change",
    [
        {"source": Location("s3://here/p/", endpoint_url="http://127.0.0.1:1")},
        {"source": Location("s3://here/p/", credential_ref="env:OTHER")},
        {"source": Location("s3://here/p/", options={"requester-pays": "true"})},
        {"include": ("a",)},
        {"exclude": ("a",)},
        {"files_from": ("a",)},
    ],
)
def test_rows_of_another_source_or_selection_are_not_used(
    listing: SourceListing, store: CountingStore, change: dict[str, Any]
) -> None:
    take(listing, store)
    other = replace(JOB, **change)
    take(listing, store, job=other)
    assert store.starts == [None, None]
    assert listing.hand_over(JOB) is None


def test_the_region_that_a_run_finds_does_not_matter(
    listing: SourceListing, store: CountingStore
) -> None:
    take(listing, store)
    located = replace(JOB, source=JOB.source.at("aws:eu-west-3"))
    take(listing, store, job=located)
    assert store.starts == [None]
    assert listing.hand_over(located) is not None


def test_another_prefix_is_listed(listing: SourceListing, store: CountingStore) -> None:
    take(listing, store)
    take(listing, store, prefix="p/b")
    take(listing, store, prefix="p/b")
    assert store.starts == [None, None]


@pytest.mark.parametrize("most", [0, 2, 4])
def test_only_so_many_rows_are_kept(
    listing: SourceListing, store: CountingStore, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_listing, "MOST_ROWS", most)
    assert take(listing, store) == KEYS
    assert take(listing, store) == KEYS
    assert store.starts == {0: [None, None], 2: [None, "p/b"], 4: [None]}[most]
    rows = tuple(store.list("p/"))
    assert listing.hand_over(JOB) == ListedRows("p/", rows[:most], is_complete=most == 4)


def test_what_reads_ahead_adds_no_rows(listing: SourceListing, store: CountingStore) -> None:
    def all_at_once(rows: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        return iter(list(rows))

    next(listing.lister(JOB, store, through=all_at_once)("p/"))
    found = listing.hand_over(JOB)
    assert found is not None
    assert [row.key for row in found.rows] == KEYS[:1]


def test_after_an_error_the_next_step_asks_again(
    listing: SourceListing, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(store.list("p/"))

    def broken(*_: Any, **__: Any) -> Iterator[ObjectInfo]:
        yield from whole[:2]
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(store, "list", broken)
        with pytest.raises(StoreUnavailable):
            take(listing, store)
    store.starts.clear()
    assert take(listing, store) == KEYS
    assert store.starts == ["p/b"]


def test_an_earlier_iteration_does_not_disturb_a_later_one(
    listing: SourceListing, store: CountingStore
) -> None:
    first = listing.lister(JOB, store)("p/")
    next(first)
    later = listing.lister(JOB, store)("p/")
    next(later)
    list(first)
    assert [row.key for row in later] == KEYS[1:]
    found = listing.hand_over(JOB)
    assert found is not None
    assert [row.key for row in found.rows] == KEYS
