"""Plans jobs: finds regions and volume, then asks the planner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import LOCAL
from skyplane_orchestration.model.job import (
    DEFAULT_OBJECTIVE,
    Limits,
    MinimizeCost,
    Policy,
    TransferJob,
    objective_from_dict,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import RefusedLaunch, TransferPlan
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.provision.parallel import answered
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.storage.preflight import located_ends
from skyplane_orchestration.storage.server_side_eligibility import (
    server_side_note,
    why_not_server_side,
)
from skyplane_orchestration.storage.source_listing import SourceListing
from skyplane_orchestration.timing import timed
from skyplane_orchestration.units import bytes_to_gb, gbps_of

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.provision.provisioner import Provisioner

log = logging.getLogger(__name__)

#: Names the limit of a region that does not answer.
_ANSWERING: Final = "the regions that answer"
#: The lowest rate that is planned for; the solver's tolerances are too coarse for lower ones.
_LEAST_GBPS: Final = 0.01

#: Is called with a job whose volume is known, before the best plan for it is searched.
OnMeasured = Callable[[TransferJob], None]


def within_quotas(
    grid: Grid,
    provisioner: Provisioner,
    ends: Sequence[str],
    policy: Policy,
    refused: Iterable[RefusedLaunch] = (),
) -> Grid:
    """The grid with what a provisioner knows of its account, for plans between these regions.

    Raises CloudUnavailable: an end does not answer. Other regions that do not answer get no relay.
    Also errors as `require_known_regions`.
    """
    require_known_regions(policy, grid.tags)
    may_run = (*ends, *(tag for tag in grid.tags if policy.may_relay(tag)))
    quotas, silent = answered(provisioner.quotas, tuple(dict.fromkeys(may_run)))
    for end in ends:
        if end in silent:
            raise silent[end]
    if silent:
        log.warning("plans have no relay in regions that do not answer: %s", ", ".join(silent))
    if not provisioner.has_internal_addresses:
        from skyplane_orchestration.grids.throughput_model import between_external_addresses

        grid = between_external_addresses(grid)
    of_account = (one for one in quotas if one.of_relays in (None, one.region not in ends))
    closed = (RegionQuota(tag, _ANSWERING, instances=0) for tag in silent)
    after_refusals = (_quota_after(grid, one) for one in refused)
    return replace(
        grid.with_account((*of_account, *closed, *after_refusals)),
        provision_s=provisioner.provision_s,
    )


def require_known_regions(policy: Policy, tags: Sequence[str]) -> None:
    """Raises ConfigurationInvalid for a glob that matches no region; see `require_glob`."""
    from skyplane_orchestration.grids.names import require_glob

    for name in ("exclude_regions", "allow_regions"):
        for glob in getattr(policy, name):
            require_glob(name, glob, tags)


def plan_job(
    grid: Grid,
    job: TransferJob,
    credentials: CredentialSources,
    provisioner: Provisioner,
    listing: SourceListing | None = None,
    on_measured: OnMeasured = lambda _: None,
    *,
    may_assume: bool = False,
    ends: Callable[[], tuple[Location, Location]] | None = None,
) -> TransferPlan:
    """The best plan for a job; see `Client.plan`.

    `ends` gives `preflight.located_ends` of the job, where they are asked for already.
    """
    from skyplane_orchestration import planner

    given = job
    with timed("plan: regions and volume"):
        preflight.require_ends_apart(job)
        located = ends() if ends else located_ends(job.source, job.destination, credentials)
        job, notes = measured(job, credentials, listing, may_assume=may_assume, ends=located)
    on_measured(job)
    regions = job.source.region, job.destination.region
    with timed("plan: quotas"):
        grid = replace(within_quotas(grid, provisioner, regions, job.policy), contents=job.contents)
    for place in (given.source, given.destination):
        cloud = regions[0].partition(":")[0]
        if place.kind != "file" or place.region or cloud in ("local", *job.limits.instance_types):
            continue
        grid = grid.with_processes(cloud)
        where = f"{place.url!r} is on this machine and counts as in {regions[0]}"
        notes = (*notes, f"{where}; the gateways are processes here, which cost nothing")
    limits = limits_of(job)
    with timed("plan: search"):
        plan = planner.plan(
            grid,
            *regions,
            job.objective or DEFAULT_OBJECTIVE,
            volume_gb=job.volume_gb,
            objects=job.objects,
            limits=limits,
            policy=job.policy,
        )
    if may_assume:
        notes = (*notes, *_assumed(located, plan, provisioner))
    if not why_not_server_side(job):
        notes = (*notes, server_side_note(job))
        plan = replace(plan, server_side_copy=True)
    return replace(plan, notes=(*plan.notes, *notes)) if notes else plan


def _assumed(
    ends: tuple[Location, Location], plan: TransferPlan, provisioner: Provisioner
) -> Iterator[str]:
    """Notes on the ends of a job, `located`, whose regions the plan assumes.

    Raises InvalidLocation where gateways are to run on instances: they need the true regions.
    """
    for end, place in zip(("source", "destination"), ends, strict=True):
        if place.kind == "file" or place.region:
            continue
        if not _is_here(plan, provisioner):
            preflight.require_region(end, place)
        region = plan.src if end == "source" else plan.dst
        yield f"the region of {place.url!r} is not known: it counts as in {region}, without egress"


def _is_here(plan: TransferPlan, provisioner: Provisioner) -> bool:
    """Whether the gateways of a plan run on this machine wherever its regions are."""
    from skyplane_orchestration.provision.in_process.small_jobs import SmallJobsProvisioner

    if isinstance(provisioner, SmallJobsProvisioner) and provisioner.keeps_inside(plan):
        return True
    return provisioner.name == LOCAL


def plan_job_again(
    grid: Grid,
    job: TransferJob,
    plan: TransferPlan,
    refused: RefusedLaunch,
    provisioner: Provisioner,
) -> TransferPlan:
    """The best plan for the objective of a plan, without what clouds have refused.

    Reads the quotas of the account again, and keeps the volume that the plan has.
    """
    from skyplane_orchestration import planner

    every = (*plan.refused, refused)
    ends = plan.src, plan.dst
    with timed("plan again"):
        grid = within_quotas(grid, provisioner, ends, job.policy, every)
        found = planner.plan(
            replace(grid, contents=plan.contents),
            *ends,
            objective_from_dict(plan.objective),
            volume_gb=plan.volume_gb,
            objects=plan.objects,
            limits=limits_of(job),
            policy=job.policy,
        )
    return replace(in_place_of(plan, found, job), refused=every)


def in_place_of(plan: TransferPlan, found: TransferPlan, job: TransferJob) -> TransferPlan:
    """A plan that was made again, with what holds for the job and not for the plan before."""
    notes = (server_side_note(job),) if plan.server_side_copy else ()
    return replace(
        found,
        notes=(*found.notes, *notes),
        server_side_copy=plan.server_side_copy,
        refused=plan.refused,
    )


def _quota_after(grid: Grid, refused: RefusedLaunch) -> RegionQuota:
    """What a region still has, as a quota.

    A quota that is used up has room for less than one more instance of any of its types. Without
    capacity for a type, others may have some.
    """
    cloud, kind = refused.region.partition(":")[0], refused.instance_type
    vcpus = grid.instance_type(cloud, kind).vcpus
    name, series, most = f"the capacity for {kind}", kind, refused.instances * vcpus
    if refused.is_quota:
        name, series = refused.quota or "a quota that is used up", refused.series
        most += vcpus - 1
    return RegionQuota(refused.region, name, vcpus=most, series=series)


def limits_of(job: TransferJob) -> Limits:
    """The limits of a plan: more gateways than the bandwidth limit uses would only cost.

    Raises ConfigurationInvalid for a throughput that the bandwidth limit forbids.
    """
    if job.bytes_per_s is None:
        return job.limits
    rate = max(gbps_of(job.bytes_per_s, 1.0), _LEAST_GBPS)
    if isinstance(job.objective, MinimizeCost) and job.objective.floor_gbps > rate:
        raise ConfigurationInvalid.about(
            "{min_throughput_gbps} {floor:g} is more than {bwlimit} {given} allows "
            "({rate:.3g} Gbit/s); change one",
            floor=job.objective.floor_gbps,
            given=job.bwlimit,
            rate=gbps_of(job.bytes_per_s, 1.0),
        )
    return replace(job.limits, source_read_gbps=min(rate, job.limits.source_read_gbps or rate))


def plan_job_to_all(
    grid: Grid,
    job: TransferJob,
    further: Sequence[Location],
    credentials: CredentialSources,
    provisioner: Provisioner,
) -> TransferPlan:
    """One plan for several destinations; see `Client.plan_to_all`."""
    from skyplane_orchestration import planner

    job, notes = measured(job, credentials)
    others = [preflight.locate(replace(job, destination=one), credentials) for one in further]
    destinations = [one.destination.region for one in (job, *others)]
    source = job.source.region
    grid = within_quotas(grid, provisioner, (source, *destinations), job.policy)
    plan = planner.multicast_plan(
        replace(grid, contents=job.contents),
        source,
        destinations,
        job.objective or MinimizeCost(),
        volume_gb=job.volume_gb,
        objects=job.objects,
        limits=job.limits,
        policy=job.policy,
    )
    return replace(plan, notes=(*plan.notes, *notes)) if notes else plan


def summed(jobs: Sequence[TransferJob]) -> TransferJob:
    """The first of measured jobs, with the volume of all; see `Client.plan_together`."""
    first = jobs[0]
    ends = {(job.source.region, job.destination.region) for job in jobs}
    if len(ends) > 1:
        pairs = ", ".join(sorted(f"{src} to {dst}" for src, dst in ends))
        raise ConfigurationInvalid(
            f"one fleet carries transfers between the same two regions only, and these jobs are "
            f"from {pairs}; run them apart"
        )
    volume_gb = sum(job.volume_gb or 0.0 for job in jobs)
    objects = sum(job.objects or 0 for job in jobs)
    parts = [(job.contents, (job.volume_gb or 0.0) / (volume_gb or 1.0)) for job in jobs]
    names = {name for part, _ in parts for name in part.classes}
    contents = SourceContents(
        max(part.largest * share for part, share in parts),
        {name: sum(part.classes.get(name, 0.0) * share for part, share in parts) for name in names},
    )
    return replace(first, volume_gb=volume_gb or None, objects=objects or None, contents=contents)


def measured(
    job: TransferJob,
    credentials: CredentialSources,
    listing: SourceListing | None = None,
    *,
    may_assume: bool = False,
    ends: tuple[Location, Location] | None = None,
) -> tuple[TransferJob, tuple[str, ...]]:
    """The job with regions, volume and number of objects; see `JobRun.measured`."""
    job = preflight.locate(job, credentials, may_assume=may_assume, ends=ends)
    if job.volume_gb is not None:
        return job, ()
    volume = preflight.measure(job, credentials, listing)
    # Empty objects count as one byte: without a volume a plan has all instances of the quotas.
    size_bytes = max(volume.size_bytes, min(volume.objects, 1))
    job = replace(
        job,
        volume_gb=bytes_to_gb(size_bytes) or None,
        objects=volume.objects,
        contents=volume.contents,
    )
    notes = []
    if volume.is_capped:
        notes.append(f"the listing stopped at {volume.objects} objects; there is more to move")
    if volume.archived:
        notes.append(
            f"the volume includes {counted(volume.archived, 'archived object')}, which cannot be"
            " read until they are restored"
        )
    return job, tuple(notes)
