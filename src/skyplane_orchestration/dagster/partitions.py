"""The partitions of a run: their keys, and one plan for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import dagster as dg

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.storage.source_listing import SourceListing

#: The context of an op or of an asset.
AnyContext = dg.OpExecutionContext | dg.AssetExecutionContext

#: In a URL: replaced by the key of the materialized partition.
PARTITION_KEY: Final = "{partition_key}"

#: The key of the one job of a run without partitions.
NO_PARTITION: Final = ""


def partition_keys_of(context: AnyContext) -> tuple[str, ...]:
    """The partitions that a run materializes; `NO_PARTITION` alone if it has none."""
    if context.has_partition_key:
        return (context.partition_key,)
    if context.has_partition_key_range:
        return tuple(context.partition_keys)
    return (NO_PARTITION,)


def in_partition(location: Location, key: str) -> Location:
    """The location of one partition."""
    if PARTITION_KEY not in location.url:
        return location
    return replace(location, url=location.url.replace(PARTITION_KEY, key))


def require_one_fleet(policy: dg.BackfillPolicy | None, ends: Sequence[Location]) -> None:
    """Raise ConfigurationInvalid if one run may have partitions in different buckets."""
    if policy is None or policy.max_partitions_per_run == 1:
        return
    for end in ends:
        if PARTITION_KEY in end.bucket:
            raise ConfigurationInvalid(
                f"backfill_policy: one run copies all its partitions over one fleet, so they must "
                f"be in one bucket, and {end.url!r} has a bucket for each; use "
                "BackfillPolicy.multi_run()"
            )


def plan_of(client: Client, jobs: Sequence[TransferJob]) -> TransferPlan:
    """Check the jobs of a run, then make one plan for the volume of all of them.

    Raises as `Client.check_destination`, `Client.check_deletes`, `Client.plan` and
    `Client.plan_together`.
    """
    if len(jobs) == 1:
        (job,) = jobs
        listing = _checked(client, job)
        plan = client.plan(job, listing=listing)
        return plan.without_work() if client.has_nothing_to_copy(job, listing=listing) else plan
    measured: list[TransferJob] = []
    notes: list[str] = []
    is_idle = True
    for job in jobs:
        # Each listing may keep many rows, so only one is kept at a time.
        listing = _checked(client, job)
        known, more = client.measured(job, listing=listing)
        measured.append(known)
        notes += more
        is_idle = client.has_nothing_to_copy(job, listing=listing) and is_idle
    plan = client.plan_together(measured)
    plan = replace(plan, notes=(*plan.notes, *dict.fromkeys(notes)))
    return plan.without_work() if is_idle else plan


def _checked(client: Client, job: TransferJob) -> SourceListing:
    client.check_destination(job)
    listing = client.source_listing()
    client.check_deletes(job, listing=listing)
    return listing
