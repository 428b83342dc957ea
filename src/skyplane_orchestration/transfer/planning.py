"""The client's looks at the world: plans, previews, checks, comparisons. Nothing is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from skyplane_gateway.selection import Selection
from skyplane_orchestration.model.job import NO_LIMITS, Limits, Objective, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.multicast_plan import MulticastPlan
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.storage.empty_source import saying_which
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid
    from skyplane_orchestration.storage.compare import VerifyReport


class Planning:
    """The part of `client.Client` that builds nothing and changes nothing.

    Args: see there.
    """

    def __init__(
        self,
        grid: str | Path,
        price_overrides: str | Path | None,
        credentials: CredentialSources | None,
    ) -> None:
        self._grid_name = grid
        self._price_overrides = price_overrides
        self._grid: Grid | None = None
        self._credentials = credentials or CredentialSources()

    @property
    def grid(self) -> Grid:
        """The grid, loaded on first use.

        Raises:
            GridInvalid: its files are broken, or the file of agreed prices is.
        """
        if self._grid is None:
            from skyplane_orchestration.grids import load_grid

            self._grid = load_grid(self._grid_name, price_overrides=self._price_overrides)
        return self._grid

    def plan(self, job: TransferJob, *, proof_s: float | None = None) -> TransferPlan:
        """The best plan for a job.

        Needs no cloud when the regions and `volume_gb` are given; otherwise the buckets
        are asked for their region and the source is listed (up to a cap).

        Args:
            proof_s: seconds for each attempt to prove that nothing is better; see
                `planner.plan`.

        Raises:
            UnknownRegion, PlanInfeasible: no plan, and why.
            EmptySource: there is nothing to copy.
            StoreError: an end is missing, closed to us, or does not answer.
        """
        from skyplane_orchestration import planner

        with timed("plan: regions and volume"):
            job, notes = self.measured(job)
        ends = job.source.region, job.destination.region
        with timed("plan: search"):
            plan = planner.plan(
                self.grid,
                *ends,
                job.objective or self.default_objective(*ends, job.limits),
                volume_gb=job.volume_gb,
                objects=job.objects,
                limits=job.limits,
                policy=job.policy,
                proof_s=planner.PROOF_S if proof_s is None else proof_s,
            )
        return replace(plan, notes=(*plan.notes, *notes)) if notes else plan

    def plan_to_all(
        self, job: TransferJob, further: Sequence[Location], *, proof_s: float | None = None
    ) -> MulticastPlan:
        """One plan that brings the job's source to its destination and to further ones.

        For looking and comparing: gateways of this release bring data to one destination.

        Raises:
            ConfigurationInvalid: two destinations lie in one region, or one in the source's.
            UnknownRegion, PlanInfeasible: no plan, and why.
            EmptySource: there is nothing to copy.
            StoreError: an end is missing, closed to us, or does not answer.
        """
        from skyplane_orchestration import planner

        job, notes = self.measured(job)
        others = [
            preflight.locate(replace(job, destination=one), self._credentials) for one in further
        ]
        destinations = [one.destination.region for one in (job, *others)]
        source = job.source.region
        plan = planner.multicast_plan(
            self.grid,
            source,
            destinations,
            job.objective
            or planner.default_multicast_objective(self.grid, source, destinations, job.limits),
            volume_gb=job.volume_gb,
            objects=job.objects,
            limits=job.limits,
            policy=job.policy,
            proof_s=planner.PROOF_S if proof_s is None else proof_s,
        )
        return replace(plan, notes=(*plan.notes, *notes)) if notes else plan

    def measured(self, job: TransferJob) -> tuple[TransferJob, tuple[str, ...]]:
        """The job with its regions, volume and number of objects, and what limits these.

        The source is listed (up to a cap) where no volume is given.

        Raises:
            EmptySource: there is nothing to copy.
            StoreError: an end is missing, closed to us, or does not answer.
        """
        job = preflight.locate(job, self._credentials)
        if job.volume_gb is not None:
            return job, ()
        volume = preflight.measure(job, self._credentials)
        job = replace(job, volume_gb=volume.size_gb or None, objects=volume.objects)
        if not volume.is_capped:
            return job, ()
        return job, (f"the listing stopped at {volume.objects} objects; there is more to move",)

    def default_objective(
        self, source: str, destination: str, limits: Limits = NO_LIMITS
    ) -> Objective:
        """At least the rate of the direct path with one instance at each end (region tags).

        Raises:
            UnknownRegion, PlanInfeasible: there is no such path.
        """
        from skyplane_orchestration import planner

        return planner.default_objective(self.grid, source, destination, limits)

    def preview(self, job: TransferJob) -> list[Selection]:
        """What a transfer would do with each object now; writes nothing.

        Raises:
            StoreError: an end cannot be listed. EmptySource: there is nothing to copy.
        """
        return preflight.preview(preflight.locate(job, self._credentials), self._credentials)

    def check_destination(self, job: TransferJob) -> None:
        """See that the destination is there before anything is built for it.

        Raises:
            StoreError: it is missing, closed to us, or does not answer.
        """
        with timed("check of the destination"):
            preflight.check_destination(job, self._credentials)

    def check_move(self, job: TransferJob) -> None:
        """See that a move may delete at its source; nothing to do for a copy.

        Raises:
            ConfigurationInvalid: one end lies in the other.
            StoreError: the source may not be deleted from, or does not answer.
        """
        if job.move:
            from skyplane_orchestration.transfer.move import check_move

            check_move(job, self._credentials)

    def check_place(self, location: Location) -> None:
        """See that a bucket is there and may be listed.

        Raises:
            StoreError: it is missing, closed to us, or does not answer.
        """
        preflight.check_place(preflight.located(location, self._credentials), self._credentials)

    def verify(
        self,
        source: Location,
        destination: Location,
        *,
        recursive: bool = True,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        allow_empty: bool = False,
        with_extra: bool = False,
        listing_only: bool = False,
        parallel: int | None = None,
    ) -> VerifyReport:
        """Compare two places object by object, under the key rule of a copy.

        Checksums are the stores' own CRC32C where these can be trusted; otherwise the
        object is read, here, without gateways. Needs permission to list and read both.

        Raises:
            EmptySource, NotFound: there is nothing to compare with.
            StoreError: an end is missing, closed to us, or cannot be listed.
        """
        from skyplane_orchestration.storage.compare import PARALLEL_READS, verify_job

        with saying_which("source"):
            source = preflight.located(source, self._credentials)
        with saying_which("destination"):
            destination = preflight.located(destination, self._credentials)
        job = TransferJob(
            source,
            destination,
            recursive=recursive,
            include=tuple(include),
            exclude=tuple(exclude),
            allow_empty=allow_empty,
        )
        return verify_job(
            job,
            self._credentials,
            with_extra=with_extra,
            listing_only=listing_only,
            parallel=PARALLEL_READS if parallel is None else parallel,
        )
