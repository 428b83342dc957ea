"""Deletes what only the destination has, once a transfer has ended well.

The listing that decides is made after all copies: so a run that was killed before its deletes
needs no memory of them, and the next run finds what is left. The check before the first byte
lists as well, so that a run with too many deletes changes nothing.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import (
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
    TooManyDeletes,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.delete_limit import DeleteLimit
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.empty_source import CountingLister
from skyplane_orchestration.storage.extra_objects import ExtraObjects
from skyplane_orchestration.storage.open import open_ends, rule_of
from skyplane_orchestration.storage.parallel import map_parallel
from skyplane_orchestration.storage.pattern_notes import require_protection, unmatched_warnings
from skyplane_orchestration.storage.source_listing import SourceListing
from skyplane_orchestration.transfer.aliasing import require_distinct_ends, require_no_overlap
from skyplane_orchestration.transfer.move import Outcome, Removal, announcers_first
from skyplane_orchestration.transfer.path_conflicts import (
    Blockers,
    InTheWay,
    asides_of,
    put_back,
    put_back_others,
)
from skyplane_orchestration.transfer.row_spool import RowSpool

log = logging.getLogger(__name__)

#: Code of a transfer that copied everything and could not delete every extra object.
EXTRA_LEFT: Final = "extra-left"

#: Objects that are deleted in parallel.
_PARALLEL: Final = 16

_REASON: Final = "it is not at the source"

#: Takes the report's row of a deleted object.
Record = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class DeletePlan:
    """What the deletes of a job would be now.

    Args:
        objects: number of deletes.
        most: the most that the job allows.
        is_source_empty: the filters select nothing at the source, so nothing is deleted.
        warnings: about patterns that match no key at either end.
        in_the_way: see `Blockers.among`.
    """

    objects: int
    most: int
    is_source_empty: bool = False
    warnings: tuple[str, ...] = ()
    in_the_way: InTheWay = field(default_factory=dict)

    def require_allowed(self, job: TransferJob) -> None:
        """Raises TooManyDeletes."""
        if self.objects > self.most:
            raise TooManyDeletes.about(
                "{objects} at {url!r} would be deleted, and {max_delete} {given} allows {most};"
                " nothing was deleted, check the source or raise {max_delete}",
                objects=counted(self.objects, "object"),
                url=job.destination.url,
                given=job.max_delete,
                most=self.most,
            )


def check_extra(
    job: TransferJob,
    credentials: CredentialSources,
    rng: random.Random,
    listing: SourceListing | None = None,
    transfer_key: str = "",
) -> DeletePlan:
    """Check that a job may delete at its destination, before a fleet is built for it.

    What runs that were killed have set aside is put back first. `listing` has the rows of the
    source that the run knows, and gets the others.

    Raises:
        TooManyDeletes: it would delete more than it allows.
        ConfigurationInvalid: the ends are one place or overlap, under whatever names; or as
            `list_extra`.
        StoreError: an end cannot be listed, or the destination cannot be written.
    """
    require_no_overlap(job)
    with open_ends(job, credentials) as (source, destination):
        require_distinct_ends(job, source, destination, rng)
    for warning in put_back_others(job, transfer_key):
        log.warning("%s", warning)
    with closing(RowSpool()) as found:
        plan = list_extra(job, credentials, found, listing, transfer_key)
    try:
        plan.require_allowed(job)
    except TooManyDeletes:
        # An earlier try may have been killed, and there may be no further one.
        for warning in put_back(job, transfer_key) if transfer_key else ():
            log.warning("%s", warning)
        raise
    return plan


def preview_extra(
    job: TransferJob, credentials: CredentialSources
) -> tuple[DeletePlan, Iterator[ObjectInfo]]:
    """What the deletes of a job would be now; errors as `list_extra`."""
    found = RowSpool()
    plan = list_extra(job, credentials, found)
    return plan, _infos(found)


def list_extra(
    job: TransferJob,
    credentials: CredentialSources,
    found: RowSpool,
    listing: SourceListing | None = None,
    transfer_key: str = "",
) -> DeletePlan:
    """List both ends, and add the extra objects to `found`.

    What the transfer of that key has set aside counts, too: it is deleted with the others.
    Adds none where the filters select nothing at the source: an empty listing is more often a
    mistake or a fault than a wish. Raises StoreError where a listing fails, and
    ConfigurationInvalid for an exclude pattern that misses the folder that it names.
    """
    listing = listing or SourceListing()
    with open_ends(job, credentials) as (source, destination):
        rule = rule_of(job)
        use = PatternUse(rule, job.publish_last, looks_below=True)
        of_source = CountingLister(listing.lister(job, source, wants=use.wants), "source")
        of_destination = CountingLister(destination.list, "destination")
        blockers = Blockers(folder_of(job.destination.key))
        extra = ExtraObjects(
            rule,
            use.watch(of_source, rule.source_prefix),
            use.watch(of_destination, rule.destination_prefix),
            blockers.see if job.destination.kind == "file" else lambda name: None,
        )
        with closing(RowSpool()) as listed:
            asides = asides_of(job, transfer_key) if transfer_key else None
            objects = aside = 0 if asides is None else len(asides.names())
            for info in extra:
                objects += 1
                listed.add([info.to_dict()])
            require_protection(job, use)
            warnings = unmatched_warnings(use.unmatched(), "at either end", rule)
            if not extra.selected:
                return DeletePlan(0, 0, is_source_empty=True, warnings=warnings)
            found.add(listed.rows())
    most = DeleteLimit.from_text(job.max_delete).most(extra.there + aside)
    in_the_way = blockers.among(_infos(found))
    return DeletePlan(objects, most, warnings=warnings, in_the_way=in_the_way)


def delete_extra(
    job: TransferJob,
    credentials: CredentialSources,
    result: TransferResult,
    rng: random.Random,
    record: Record = lambda row: None,
    note: Callable[[Iterable[str]], Iterable[str]] = lambda keys: (),
) -> TransferResult:
    """Delete the extra objects of a transfer that ended well; its result with what became of that.

    Deletes nothing where an object failed or has no outcome. Right before each delete it checks
    that the source still has no such object. The delete is conditional on the listed version.
    `note` is called with the keys that will be deleted, once they are allowed; it gives warnings.
    """
    if result.failed or result.unfinished:
        return _warned(result, "not every object was copied")
    deletion = Removal()
    trouble = ""
    try:
        require_no_overlap(job)
        with closing(RowSpool()) as found:
            plan = list_extra(job, credentials, found, transfer_key=result.transfer_key)
            result = replace(result, warnings=(*result.warnings, *plan.warnings))
            if plan.is_source_empty:
                return _warned(result, "the listing of the source came back empty")
            plan.require_allowed(job)
            asides = asides_of(job, result.transfer_key)
            aside = asides.names() if asides is not None else ()
            folder = folder_of(job.destination.key)
            keys = chain((info.key for info in _infos(found)), (folder + name for name in aside))
            result = replace(result, warnings=(*result.warnings, *note(keys)))
            _delete_all(job, credentials, found, rng, deletion, record)
        # The copies are in their place.
        for info in asides.discard() if asides is not None and not deletion.failed else ():
            deletion.removed += 1
            record(_row(info))
    except SkyplaneError as error:
        trouble = error.message
        if not deletion.removed and error.is_permanent:
            return replace(result, state="failed", error=error.message, error_code=error.code)
    if deletion.failed:
        trouble = trouble or deletion.reasons[0]
    warnings = (*result.warnings, *deletion.reasons)
    result = replace(result, deleted=deletion.removed, warnings=warnings)
    if not trouble:
        return result
    text = (
        "all copies are at the destination, but some of the objects that only it has could not be "
        f"deleted ({deletion.removed} were): {trouble}; run the transfer again"
    )
    return replace(result, state="failed", error=text, error_code=EXTRA_LEFT)


def _warned(result: TransferResult, why: str) -> TransferResult:
    warning = f"nothing was deleted at the destination, because {why}"
    return replace(result, warnings=(*result.warnings, warning))


def _delete_all(
    job: TransferJob,
    credentials: CredentialSources,
    found: RowSpool,
    rng: random.Random,
    deletion: Removal,
    record: Record,
) -> None:
    """Delete the extra objects; where one that announces others stays, these stay as well."""
    folder, source_folder = folder_of(job.destination.key), folder_of(job.source.key)
    with open_ends(job, credentials) as (source, destination):
        require_distinct_ends(job, source, destination, rng)

        def delete(info: ObjectInfo) -> Outcome:
            twin = source_folder + info.key.removeprefix(folder)
            return _delete(source, destination, info, twin)

        for chosen in announcers_first(job, lambda: _infos(found), lambda info: info.key):
            for info, outcome in map_parallel(chosen, delete, _PARALLEL):
                deletion.count(job.destination.url_of(info.key), outcome)
                if outcome[0] == "removed":
                    record(_row(info))
            if deletion.failed:
                return


def _infos(found: RowSpool) -> Iterator[ObjectInfo]:
    return map(ObjectInfo.from_dict, found.rows())


def _row(info: ObjectInfo) -> dict[str, Any]:
    """The report's row of a deleted object."""
    return {
        "state": "deleted",
        "source": "",
        "destination": info.key,
        "bytes": info.size_bytes,
        "attempts": 1,
        "reason": _REASON,
    }


def _delete(
    source: ObjectStore, destination: ObjectStore, listed: ObjectInfo, twin: str
) -> Outcome:
    """Delete one object unless `twin`, its key at the source, exists now."""
    try:
        if _exists(source, twin):
            return "kept", "it is at the source now"
        # Some stores have no conditional delete.
        if destination.head(listed.key).etag != listed.etag:
            return "kept", "it was changed after it had been listed"
        with suppress(NotFound):  # So a delete is answered whose first answer was lost.
            destination.delete(listed.key, if_match=listed.etag)
    except NotFound:
        return "gone", ""
    except PreconditionFailed:
        return "kept", "it was changed after it had been listed"
    except StoreError as error:
        return "failed", error.message
    return "removed", ""


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except NotFound:
        return False
    except PermissionDenied:
        # S3 says so of a missing key if a policy allows to list certain prefixes only.
        return any(row.key == key for row in store.list(key))
    return True
