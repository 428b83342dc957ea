"""Checks both ends before a fleet is built: region, volume, and what would be copied."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, permutations
from typing import Any, Final

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.wording import FieldName, with_fields
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.selection.metadata_check import metadata_not_carried
from skyplane_gateway.selection.overlap import lies_in, refuse_overlap
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.selector import Selection, select
from skyplane_gateway.stores import bucket_region, check_destination_key, escape_name, require_kind
from skyplane_orchestration.errors import ConfigurationInvalid, InvalidLocation, NotRestored
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.job_checks import check_manifest
from skyplane_orchestration.model.location import Location, named_location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.empty_source import (
    CountingLister,
    named_in_errors,
    require_file,
    require_some,
)
from skyplane_orchestration.storage.manifest.elsewhere import open_manifest
from skyplane_orchestration.storage.open import (
    asker_of,
    beside_location,
    destination_lister,
    ends_of,
    open_ends,
    open_location,
    rule_of,
    spec_of,
    transfer_spec_of,
)
from skyplane_orchestration.storage.parallel import map_parallel
from skyplane_orchestration.storage.pattern_notes import unmatched_warnings
from skyplane_orchestration.storage.source_listing import SourceListing

log = logging.getLogger(__name__)

#: Most objects that are listed for a plan; a plan for more has a note.
LISTING_CAP: Final = 200_000

#: Stores that cannot name their region. Azure names it to the management API only.
_REGIONLESS: Final = ("file", "azure")
#: Where the AWS CLI looks for a region.
_S3_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
#: Kind of store -> a region, for messages.
_EXAMPLES: Final = {"azure": "azure:westeurope"}


@dataclass(frozen=True, slots=True)
class Volume:
    """What there is to move; `is_capped` when the listing stopped before its end.

    `archived` counts objects among them that the rule for archived objects refuses or skips.
    """

    objects: int
    size_bytes: int
    is_capped: bool
    archived: int
    contents: SourceContents


def require_ends_apart(job: TransferJob) -> None:
    """Raise ConfigurationInvalid for a copy onto itself or into its own source."""
    ends = spec_of(job.source), job.source.key, spec_of(job.destination), job.destination.key
    refuse_overlap(*ends, recursive=job.recursive)


def require_places_apart(places: Sequence[Location]) -> None:
    """Raise ConfigurationInvalid where one copy would write into the place of another."""
    for one, other in permutations(places, 2):
        if lies_in(spec_of(one), one.key, spec_of(other), other.key):
            raise ConfigurationInvalid(
                f"the destination {one.url} lies in the destination {other.url}; choose another"
            )


def require_usable(job: TransferJob, manifest: str | None = None) -> None:
    """Refuse what no transfer can do, before a fleet is built.

    Raises:
        InvalidLocation: the manifest is neither a path nor a URL, or a folder.
        ConfigurationInvalid: this release does not support a store of that kind; or the job trusts
            a manifest that it does not read.
    """
    _require_manifest(job)
    target = None
    if manifest is not None:
        target = named_location({"url": manifest}, {"url": "manifest"})
    for place in (job.source, job.destination, *([] if target is None else [target])):
        require_kind(place.kind)
    # `Path.is_dir` raises where it may not look.
    if target is not None and target.kind == "file" and os.path.isdir(f"/{target.key}"):  # noqa: PTH112
        what = with_fields("{manifest} {given!r} is a folder; add a name", given=manifest)
        raise InvalidLocation(what)


def _require_manifest(job: TransferJob) -> None:
    """Raises ConfigurationInvalid."""
    check_manifest(job)
    for end in (job.source, job.destination) if job.keeps_manifest_elsewhere else ():
        place = beside_location(job.destination, job.manifest_at)
        if lies_in(spec_of(place), place.key, spec_of(end), end.key):
            what = "{manifest_at} lies in {url!r}; choose a folder beside it"
            raise ConfigurationInvalid.about(what, url=end.url)


def locate(
    job: TransferJob,
    credentials: CredentialSources,
    *,
    may_assume: bool = False,
    ends: tuple[Location, Location] | None = None,
) -> TransferJob:
    """The job with the regions of both ends; a file counts as in the region of the other end.

    Args:
        may_assume: an end whose region is not known counts so, too.
        ends: `located_ends` of the job, where they are known.

    Raises:
        InvalidLocation: neither a store nor the job names a region, or the ends overlap.
        StoreError: a bucket is missing, closed to us, or does not answer.
    """
    require_ends_apart(job)
    source, destination = ends or located_ends(job.source, job.destination, credentials)
    if not may_assume:
        require_region("source", source)
        require_region("destination", destination)
    region = source.region or destination.region or "local:this-machine"
    destination = destination.at(destination.region or region)
    return replace(job, source=source.at(region), destination=destination)


def located_ends(
    source: Location, destination: Location, credentials: CredentialSources
) -> tuple[Location, Location]:
    """Both ends, `located` at the same time; errors name the end."""

    def find(end: tuple[str, Location]) -> Location:
        with named_in_errors(end[0]):
            return located(end[1], credentials)

    ends = (("source", source), ("destination", destination))
    (_, source), (_, destination) = map_parallel(ends, find, len(ends))
    return source, destination


def located(location: Location, credentials: CredentialSources) -> Location:
    """A location with its region, if the store names it. Raises StoreError."""
    if location.region or location.kind in _REGIONLESS:
        return location
    region = bucket_region(spec_of(location), credentials.resolve(location))
    return location.at(f"{location.cloud}:{region}") if region else location


def with_planned_regions(
    job: TransferJob, plan: TransferPlan, sources: CredentialSources
) -> TransferJob:
    """The job with the regions that its plan has, where they are those of the ends.

    A plan may only assume that of an Azure account or of a service, which is nothing to sign for: a
    service signs as the AWS CLI does. May ask a service for the region. Raises StoreError.
    """
    is_one = plan.src == plan.dst
    return replace(
        job,
        source=_planned(job.source, plan.src, sources, is_one),
        destination=_planned(job.destination, plan.dst, sources, is_one),
    )


def _planned(
    location: Location, tag: str, sources: CredentialSources, may_be_assumed: bool
) -> Location:
    if location.region or location.kind == "file":
        return location.at(location.region or tag)
    own = next((os.environ[name] for name in _S3_REGIONS if os.environ.get(name)), "")
    is_service = location.kind == "s3" and bool(spec_of(location).endpoint_url)
    is_doubtful = is_service and own and may_be_assumed and tag != f"aws:{own}"
    if is_doubtful and not located(location, sources).region:
        return location.at(f"aws:{own}")
    return location.at(tag) if tag.startswith(f"{location.cloud}:") else location


def require_region(end: str, location: Location) -> None:
    """Raise InvalidLocation for the location of an end without a region; files need none."""
    if not location.region and location.kind != "file":
        raise InvalidLocation.about(
            "the store does not say in which region {url!r} is; give {region} (for example "
            "{example})",
            url=location.url,
            region=FieldName(f"{end}_region"),
            example=_EXAMPLES.get(location.kind, "aws:eu-west-3"),
        )


def measure(
    job: TransferJob, credentials: CredentialSources, listing: SourceListing | None = None
) -> Volume:
    """Count what is to be copied, by listing the source up to `LISTING_CAP` objects.

    `listing` has the rows that the run knows, and gets the others.

    Raises EmptySource if the job does not allow that, or StoreError.
    """
    objects = size = archived = largest = 0
    of_class: Counter[str] = Counter()
    require_file(job)
    with open_location(job.source, credentials) as store:
        lister = CountingLister((listing or SourceListing()).lister(job, store), "source")
        # Without a listing of the destination there are no conflicts.
        rows = select(rule_of(job), lister, lambda _: iter(()))
        for row in islice(rows, LISTING_CAP):
            info = row.source
            objects += 1
            size += info.size_bytes
            largest = max(largest, info.size_bytes)
            if info.storage_class is not None:
                of_class[info.storage_class] += info.size_bytes
            archived += row.refusal is NotRestored
        is_capped = objects == LISTING_CAP and next(rows, None) is not None
        require_some(job, store, selected=objects, listed=lister.count)
    classes = {name: listed / (size or 1) for name, listed in of_class.items()}
    contents = SourceContents(largest / (size or 1), classes)
    return Volume(objects, size, is_capped, archived, contents)


def previewed(job: TransferJob, credentials: CredentialSources) -> Iterator[Selection]:
    """What a transfer would do with each object now, in constant memory.

    Raises EmptySource or StoreError, also after some rows.
    """
    _require_manifest(job)
    require_file(job)
    spec, selected = transfer_spec_of(job), 0
    with (
        open_ends(job, credentials) as (source, destination),
        open_manifest(job, destination, credentials) as manifest,
    ):
        rule = rule_of(job)
        use = PatternUse(rule, job.publish_last)
        listing = CountingLister(partial(source.list, wants=use.wants), "source")
        rows = select(
            rule,
            use.watch(listing, rule.source_prefix),
            CountingLister(destination_lister(job, destination, manifest), "destination"),
            check_key=partial(check_destination_key, job.destination.kind),
            escape_name=partial(escape_name, job.destination.kind),
            ask=asker_of(source, destination),
            ends=partial(ends_of, source, destination, manifest),
        )
        for row in rows:
            selected += 1
            yield _strict(row, spec) if spec.strict_metadata else row
        require_some(job, source, selected=selected, listed=listing.count)
    # The listings for the deletes show both ends.
    unmatched = () if job.delete else use.unmatched()
    for warning in unmatched_warnings(unmatched, "at the source", rule):
        log.warning("%s", warning)


def _strict(row: Selection, spec: TransferSpec) -> Selection:
    """The row under `strict_metadata`, as far as listings show metadata."""
    names = spec.kept.of_source(row.source).not_carried
    if row.action != "copy" or not names:
        return row
    return replace(row, action="refuse", reason=metadata_not_carried(row.source.key, names).message)


def preview_row(job: TransferJob, row: Selection) -> dict[str, Any]:
    """One row of `cp --dry-run --json`."""
    return {
        "source": job.source.url_of(row.source.key),
        "destination": job.destination.url_of(row.destination_key),
        "bytes": row.source.size_bytes,
        "action": row.action,
        "reason": row.reason,
    }


def delete_row(job: TransferJob, info: ObjectInfo) -> dict[str, Any]:
    """The row of `sync --delete --dry-run --json` for an object that only the destination has."""
    return {
        "source": "",
        "destination": job.destination.url_of(info.key),
        "bytes": info.size_bytes,
        "action": "delete",
        "reason": "it is not at the source",
    }


def check_place(location: Location, credentials: CredentialSources) -> None:
    """Check that a bucket exists and may be listed. Raises NotFound or another StoreError."""
    with open_location(location, credentials) as store:
        store.check()
