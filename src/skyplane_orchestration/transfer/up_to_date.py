"""Whether a job has anything to do, seen from here before anything is brought up for it.

The rules are the lead's own (`skyplane_gateway.selection`), on the same listings. What is in
doubt is left to the lead: a journal of the transfer, an error, more keys than are listed here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from skyplane_gateway.objects import ObjectInfo
from skyplane_gateway.selection import (
    KEEPING_RULES,
    Lister,
    Selection,
    SelectionRule,
    is_reserved,
    select,
)
from skyplane_gateway.stores import check_destination_key
from skyplane_gateway.stores.base import ObjectStore, Wants
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import CostOutcome, TransferResult
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage.open import open_ends, rule_of
from skyplane_orchestration.storage.preflight import require_ends_apart
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.control import newest_journal
from skyplane_orchestration.transfer.results import reserved_warnings

log = logging.getLogger(__name__)

#: Keys that are listed at both ends together: more take longer than gateways to come up.
MOST_KEYS: Final = 50_000


class _TooMany(Exception):
    """There are more keys than are listed here."""


class _Counted:
    """Listings that end with `_TooMany` once they have given so many keys together.

    Attributes:
        reserved, first_reserved: as of `skyplane_gateway.lead.listing_diff.Listing`.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self.reserved = 0
        self.first_reserved = ""

    def of(self, store: ObjectStore, wants: Wants | None = None) -> Lister:
        def listed(prefix: str) -> Iterator[ObjectInfo]:
            for row in store.list(prefix, wants=wants):
                if not self._left:
                    raise _TooMany
                self._left -= 1
                yield row

        return listed

    def of_source(self, store: ObjectStore, rule: SelectionRule) -> Lister:
        """The same, counting what is left out since its key is kept for journals."""

        def listed(prefix: str) -> Iterator[ObjectInfo]:
            for row in self.of(store, rule.wants)(prefix):
                if rule.recursive and is_reserved(row.key):
                    self.reserved += 1
                    self.first_reserved = self.first_reserved or row.key
                yield row

        return listed


def result_if_unchanged(
    job: TransferJob, transfer_key: str, credentials: CredentialSources
) -> TransferResult | None:
    """The success of a job whose destination is already as it shall be; None for any other.

    It writes nothing. Of a job that has something to do it reads up to the first such object.
    A move and a rule that replaces or refuses what is there always leave the lead something.
    """
    if job.move or job.conflict not in KEEPING_RULES:
        return None
    began_s = time.monotonic()
    counted = _Counted(MOST_KEYS)
    try:
        with timed("comparison of both ends"):
            kept = _kept_objects(job, transfer_key, credentials, counted)
    except _TooMany:
        log.info("more than %d keys to compare; the gateways compare them", MOST_KEYS)
        return None
    except SkyplaneError as error:
        # The same error comes again, in its place, if it stands in the way of the transfer.
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
        seconds=time.monotonic() - began_s,
        goodput_gbps=0.0,
        planned_gbps=0.0,
        edges=(),
        cost=CostOutcome(egress_usd=0.0, instance_usd=0.0, request_usd=0.0),
        failures=(),
        warnings=reserved_warnings(job, counted.reserved, counted.first_reserved),
        reserved=counted.reserved,
    )


def _kept_objects(
    job: TransferJob, transfer_key: str, credentials: CredentialSources, counted: _Counted
) -> int | None:
    """How many objects there are if all stay as they are; None if not, or nobody can tell."""
    require_ends_apart(job)
    with open_ends(job, credentials) as (source, there):
        kept = 0
        for row in _rows(job, source, there, counted):
            if row.action != "skip":
                return None
            kept += 1
        # An earlier epoch may have left uploads, or objects that it could not verify.
        return None if newest_journal(there, job, transfer_key) else kept


def _rows(
    job: TransferJob, source: ObjectStore, there: ObjectStore, counted: _Counted
) -> Iterator[Selection]:
    rule = rule_of(job)
    return select(
        rule,
        counted.of_source(source, rule),
        counted.of(there),
        check_key=partial(check_destination_key, job.destination.kind),
    )
