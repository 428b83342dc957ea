"""Checks, before a fleet is built, whether a job has anything to do.

It applies the lead's rules (`skyplane_gateway.selection`) to the same listings. In doubt the
lead decides: after an error, beyond `MOST_KEYS`, or where the transfer has a journal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from functools import partial
from itertools import islice
from queue import Queue
from typing import Final, TypeVar

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.selection.candidates import Lister
from skyplane_gateway.selection.difference import ComparisonAnswer
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.questions import ComparisonQuestion, of_checksums
from skyplane_gateway.selection.selection_rule import KEEPING_RULES, is_reserved
from skyplane_gateway.selection.selector import Selection, select
from skyplane_gateway.selection.source_digest import SourceDigest
from skyplane_gateway.stores import check_destination_key, escape_name
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import NotRestored, SkyplaneError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import NO_COST, TransferResult
from skyplane_orchestration.recovery.destination_cleanup import newest_journal_epoch
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.manifest.elsewhere import open_manifest
from skyplane_orchestration.storage.open import (
    asker_of,
    destination_lister,
    ends_of,
    journal_folder,
    open_ends,
    rule_of,
)
from skyplane_orchestration.storage.pattern_notes import unmatched_warnings
from skyplane_orchestration.storage.preflight import require_ends_apart
from skyplane_orchestration.storage.source_listing import PAGE_ROWS, SourceListing
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.first_requests import FirstRequests
from skyplane_orchestration.transfer.results import archived_warnings, manifest_warnings

log = logging.getLogger(__name__)

#: Most keys to list at both ends together. The listing ends at the first object to copy, so it is
#: repeated only where equal objects come before that one.
MOST_KEYS: Final = 200_000


class _LeftToTheLead(Exception):
    """There are more than `MOST_KEYS`, or objects must be read to be compared."""


class _LimitedListings:
    """Listings that raise `_LeftToTheLead` after a number of keys in all.

    `listing` has the rows of the source that the run knows, and gets the others.
    """

    def __init__(self, most: int, listing: SourceListing, patterns: PatternUse) -> None:
        self._left = most
        self.patterns = patterns
        self._listing = listing
        self.reserved = 0
        self.archived = 0
        self.edited = 0
        self.manifest_trouble = ""
        self.trusted_unix_s = 0.0
        self.digest = SourceDigest()

    def _limited(self, rows: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        for row in rows:
            if not self._left:
                raise _LeftToTheLead(f"there are more than {MOST_KEYS} keys to compare")
            self._left -= 1
            yield row

    def of_destination(
        self, job: TransferJob, store: ObjectStore, manifest: ManifestReader
    ) -> Lister:
        lister = destination_lister(job, store, manifest, read_ahead)
        return lambda prefix: self._limited(lister(prefix))

    def of_source(self, job: TransferJob, store: ObjectStore) -> Lister:
        """Counts objects that are left out because their keys are reserved."""
        lister = self._listing.lister(job, store, through=read_ahead, wants=self.patterns.wants)

        def listed(prefix: str) -> Iterator[ObjectInfo]:
            for row in self._limited(lister(prefix)):
                if job.recursive and is_reserved(row.key):
                    self.reserved += 1
                self.patterns.see(row.key)
                yield row

        return listed


def result_if_unchanged(
    job: TransferJob,
    transfer_key: str,
    credentials: CredentialSources,
    clock: Clock,
    listing: SourceListing | None = None,
    asked: FirstRequests | None = None,
) -> TransferResult | None:
    """The success of a job that has nothing to do; None for any other.

    Lists up to the first object to copy. A move always has something to do, and so has a rule
    that replaces or refuses existing objects.
    """
    if job.move or job.conflict not in KEEPING_RULES:
        return None
    began_s = clock.monotonic()
    patterns = PatternUse(rule_of(job), job.publish_last)
    listings = _LimitedListings(MOST_KEYS, listing or SourceListing(clock), patterns)
    try:
        with timed("comparison of both ends"):
            kept = _kept_objects(job, transfer_key, credentials, listings, asked)
    except _LeftToTheLead as why:
        log.info("%s; the gateways compare them", why)
        return None
    except SkyplaneError as error:
        # If the error matters, the transfer raises it again.
        log.info("the two ends cannot be compared from here: %s", error.message)
        return None
    if kept is None or (kept == 0 and not job.allow_empty):
        return None
    return TransferResult(
        transfer_key=transfer_key,
        epoch=0,
        state="succeeded",
        source=job.source.url,
        destination=job.destination.url,
        objects=kept,
        copied=0,
        skipped=kept,
        failed=0,
        copied_bytes=0,
        seconds=clock.monotonic() - began_s,
        goodput_gbps=0.0,
        planned_gbps=0.0,
        edges=(),
        cost=NO_COST,
        failures=(),
        warnings=(
            *archived_warnings(listings.archived),
            *manifest_warnings(
                job, listings.manifest_trouble, listings.trusted_unix_s, listings.edited
            ),
            # The listings for the deletes show both ends.
            *unmatched_warnings(
                () if job.delete else patterns.unmatched(), "at the source", rule_of(job)
            ),
        ),
        reserved=listings.reserved,
        source_digest=listings.digest.text,
    )


def _kept_objects(
    job: TransferJob,
    transfer_key: str,
    credentials: CredentialSources,
    listings: _LimitedListings,
    asked: FirstRequests | None,
) -> int | None:
    """The number of objects if none is to be copied; else None."""
    require_ends_apart(job)
    with (
        open_ends(job, credentials) as (source, destination),
        open_manifest(
            job, destination, credentials, None if asked is None else asked.manifest
        ) as manifest,
    ):
        kept = 0
        for row in _rows(job, source, destination, listings, manifest):
            if row.action != "skip":
                return None
            kept += 1
            listings.archived += row.refusal is NotRestored
            listings.edited += row.is_edited
            listings.digest.add(row.source)
        listings.manifest_trouble = manifest.trouble
        listings.trusted_unix_s = manifest.trusted_unix_s
        newest = None if asked is None else asked.journal_epoch()
        if newest is None:
            newest = newest_journal_epoch(destination, journal_folder(job), transfer_key)
        # An earlier epoch may have left uploads or unverified objects.
        return None if newest else kept


def _rows(
    job: TransferJob,
    source: ObjectStore,
    destination: ObjectStore,
    listings: _LimitedListings,
    manifest: ManifestReader,
) -> Iterator[Selection]:
    answers = asker_of(source, destination)

    def ask(asked: Sequence[ComparisonQuestion]) -> list[ComparisonAnswer]:
        if of_checksums(asked):
            raise _LeftToTheLead("there are objects that must be read to be compared")
        return answers(asked)

    return select(
        rule_of(job),
        listings.of_source(job, source),
        listings.of_destination(job, destination, manifest),
        check_key=partial(check_destination_key, job.destination.kind),
        escape_name=partial(escape_name, job.destination.kind),
        ask=ask,
        ends=partial(ends_of, source, destination, manifest),
    )


T = TypeVar("T")

#: How many pages may wait for the caller.
_PAGES_AHEAD: Final = 2


def read_ahead(rows: Iterator[T]) -> Iterator[T]:
    """The same rows, or the same error. Reads ahead only once the first page is used up."""
    first = 0
    for row in islice(rows, PAGE_ROWS):
        first += 1
        yield row
    if first < PAGE_ROWS:
        return
    pages: Queue[list[T] | BaseException] = Queue(_PAGES_AHEAD)
    is_over = threading.Event()

    def fetch() -> None:
        try:
            while not is_over.is_set():
                page = list(islice(rows, PAGE_ROWS))
                pages.put(page)
                if len(page) < PAGE_ROWS:
                    return
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            pages.put(error)

    # A daemon: the interpreter must be able to end while a store does not respond.
    threading.Thread(target=copy_context().run, args=(fetch,), name="listing", daemon=True).start()
    try:
        while True:
            page = pages.get()
            if isinstance(page, BaseException):
                raise page
            yield from page
            if len(page) < PAGE_ROWS:
                return
    finally:
        is_over.set()
        while not pages.empty():
            pages.get_nowait()  # The thread may wait for room.
