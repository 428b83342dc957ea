"""One source to several destinations: a transfer to each, on one fleet.

Only the first destination in a region is on it: a copy within the source's region, and a second one
into a region, follow one by one.

Each transfer has its own lead, journal, end and result. At the source's gateways they share what
they read and send; see `skyplane_gateway.source.join`. A destination that fails does not stop the
others.

The cost of a result is the destination's share. Egress of an edge is divided by the bytes that
each has received over it, so that the shares add up to what the edge has carried. Instances of a
region are divided equally among the destinations behind it.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from skyplane_gateway.config import Group
from skyplane_orchestration.errors import ConfigurationInvalid, DestinationsFailed, SkyplaneError
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import require_different
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import CostOutcome, TransferResult, failed_result
from skyplane_orchestration.storage import preflight
from skyplane_orchestration.transfer import planning
from skyplane_orchestration.transfer.actual_cost import with_other_items
from skyplane_orchestration.transfer.client_context import ClientContext
from skyplane_orchestration.transfer.job_run import JobRun, provision, transfer_key_of
from skyplane_orchestration.transfer.run_options import RunOptions
from skyplane_orchestration.units import bytes_to_gb

log = logging.getLogger(__name__)

#: Region pair -> bytes.
Sent = Mapping[tuple[str, str], int]


class FanOut:
    """One run of jobs that differ in their destinations alone.

    Attributes:
        results, errors: URL of a destination -> what came of its transfer, or why it failed.
    """

    def __init__(
        self, context: ClientContext, jobs: Sequence[TransferJob], options: RunOptions
    ) -> None:
        """Raises ConfigurationInvalid."""
        require_different([job.destination.url for job in jobs])
        for job in jobs:
            preflight.require_ends_apart(job)
        if any(job.recursive for job in jobs):
            preflight.require_places_apart([job.destination for job in jobs])
        if any(job.move for job in jobs):
            raise ConfigurationInvalid.about("{move} is for one destination; omit it")
        if options.manifest is not None:
            raise ConfigurationInvalid.about("{manifest} is of one destination; omit it")
        self._context = context
        self._options = options
        self._jobs = {job.destination.url: job for job in jobs}
        self._fleets: dict[str, Fleet] = {}
        self.results: dict[str, TransferResult] = {}
        self.errors: dict[str, SkyplaneError] = {}

    def run(self, plan: TransferPlan | None = None) -> dict[str, TransferResult]:
        """From the plan to the teardown; see `Client.run_to_all`."""
        if plan is None:
            for url, job in self._jobs.items():
                self._note(url, lambda job=job: self._unchanged(job))  # type: ignore[misc]
        left = [job for url, job in self._jobs.items() if not self._is_over(url)]
        if plan is not None and len(plan.destinations) != len(left):
            raise ConfigurationInvalid(
                f"the plan is for {len(plan.destinations)} destinations, not for {len(left)}"
            )
        together = left if plan is not None else self._sharing(left)
        if together:
            try:
                self._together(together, plan or self._plan(together))
            except SkyplaneError as error:
                undone = [url for job in together if not self._is_over(url := job.destination.url)]
                # All are over, and the others would meet their gateways; or there are no others.
                if len(undone) in (0, len(self._jobs)):
                    raise
                log.error("%s: %s", ", ".join(undone), error)
                self.errors |= dict.fromkeys(undone, error)
        for url in [job.destination.url for job in left]:
            if not self._is_over(url):
                self._note(url, lambda url=url: self._alone(self._jobs[url]))  # type: ignore[misc]
        if self.errors:
            raise DestinationsFailed.of(self.results, self.errors)
        return {url: self.results[url] for url in self._jobs}

    # -- steps

    def _is_over(self, url: str) -> bool:
        return url in self.results or url in self.errors

    def _note(self, url: str, step: Callable[[], TransferResult | None]) -> None:
        """Run a step of one destination; keep its result, or its error."""
        try:
            found = step()
        except SkyplaneError as error:
            log.error("%s: %s", url, error)
            self.errors[url] = error
            found = failed_result(error)
        if found is not None:
            self.results[url] = found

    def _unchanged(self, job: TransferJob) -> TransferResult | None:
        run = JobRun(self._context, job)
        run.check()
        return run.unchanged()

    def _sharing(self, jobs: Sequence[TransferJob]) -> list[TransferJob]:
        """Those that one plan is for: the first of each region but the source's; none or several.

        The copies to the others share no edge between regions, so they run by themselves.
        """
        found: dict[str, TransferJob] = {}
        for job in jobs if len(jobs) > 1 else ():
            job = preflight.locate(job, self._context.credentials)
            if job.destination.region != job.source.region:
                found.setdefault(job.destination.region, job)
        return list(found.values()) if len(found) > 1 else []

    def _alone(self, job: TransferJob) -> TransferResult:
        options = self._options
        return JobRun(self._context, job).run(
            on_status=options.on_status,
            on_submitted=options.on_submitted,
            on_fleet=options.on_fleet,
            on_full=options.on_full,
        )

    def _plan(self, jobs: Sequence[TransferJob]) -> TransferPlan:
        context = self._context
        return planning.plan_job_to_all(
            context.grid(),
            jobs[0],
            [job.destination for job in jobs[1:]],
            context.credentials,
            context.fleets.provisioner,
        )

    def _together(self, jobs: Sequence[TransferJob], plan: TransferPlan) -> None:
        context = self._context
        for job, region in zip(jobs, plan.destinations, strict=True):
            JobRun(context, job).require_credentials(plan.branch(region))
        fleet = provision(context, plan, on_full=self._options.on_full)
        try:
            if self._options.on_fleet is not None:
                self._options.on_fleet(fleet)
            self._transfer(jobs, fleet)
        except BaseException:
            context.fleets.teardown_after_error(fleet)
            raise
        context.fleets.teardown(fleet)

    def _transfer(self, jobs: Sequence[TransferJob], fleet: Fleet) -> None:
        """Run a transfer for each job, all at the same time."""
        regions = fleet.plan.destinations
        identity = self._context.identity
        members = tuple(transfer_key_of(identity, job) for job in jobs)
        key = hashlib.sha256(" ".join(members).encode()).hexdigest()[: len(members[0])]
        seal = None
        if fleet.encrypts(jobs[0].encrypt):
            authority = self._context.fleets.authority_of(fleet.key)
            seal = authority.sealing_key(key, fleet.start_id).hex()
        group = Group(key, members, seal)
        pool = ThreadPoolExecutor(len(jobs), thread_name_prefix="destination")
        try:
            waiting = [
                pool.submit(self._note, job.destination.url, self._one(job, fleet, region, group))
                for job, region in zip(jobs, regions, strict=True)
            ]
            for one in waiting:
                one.result()
        except BaseException:
            # They end with the fleet.
            self._context.fleets.teardown_after_error(fleet)
            raise
        finally:
            pool.shutdown()
        self._share_costs(fleet)

    def _one(
        self, job: TransferJob, fleet: Fleet, region: str, group: Group
    ) -> Callable[[], TransferResult]:
        own = fleet.towards(region)
        # The plan has the regions that stores or the job did not name.
        job = replace(job, destination=job.destination.at(job.destination.region or region))
        self._fleets[job.destination.url] = own
        options = replace(self._options, on_fleet=None)
        return JobRun(self._context, job).on_fleet(own, options, group).run

    def _share_costs(self, fleet: Fleet) -> None:
        try:
            with self._context.fleets.control(fleet) as control:
                sent = sent_over(fleet, control.hop_rows())
        except SkyplaneError as error:
            log.warning("the cost of shared edges is not divided: %s", error)
            return
        self.results |= shared_costs(self._fleets, self.results, sent)


def sent_over(fleet: Fleet, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Sent:
    """What each edge has carried, by the counters of the gateways before it."""
    sent: Counter[tuple[str, str]] = Counter()
    for node, own in rows.items():
        for row in own:
            for tail, head in pairwise(row["nodes"]):
                if tail == node:
                    hop = fleet.gateway(tail).region, fleet.gateway(head).region
                    sent[hop] += int(row["frame_bytes"])
    return sent


def shared_costs(
    fleets: Mapping[str, Fleet], results: Mapping[str, TransferResult], sent: Sent
) -> dict[str, TransferResult]:
    """The results with each destination's share of the cost; see the module.

    Args:
        fleets: destination -> the fleet as its transfer saw it.
        sent: what each edge has carried.
    """
    received: Counter[tuple[str, str]] = Counter()
    for result in results.values():
        for edge in result.edges:
            received[edge.src, edge.dst] += edge.sent_bytes
    users = Counter(tag for fleet in fleets.values() for tag in fleet.plan.instances)
    found = dict(results)
    for url in fleets.keys() & results.keys():
        result, plan = results[url], fleets[url].plan
        prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in plan.edges}
        alone_usd = shared_usd = 0.0
        for edge in result.edges:
            hop = edge.src, edge.dst
            usd = bytes_to_gb(edge.sent_bytes) * prices.get(hop, 0.0)
            alone_usd += usd
            shared_usd += usd * min(1.0, sent.get(hop, received[hop]) / max(1, received[hop]))
        hourly = {tag: one.count * one.usd_per_hour for tag, one in plan.instances.items()}
        own_usd = sum(usd / users[tag] for tag, usd in hourly.items())
        of_egress = shared_usd / alone_usd if alone_usd else 1.0
        of_instances = own_usd / sum(hourly.values()) if own_usd else 1.0
        tried = result.this_try
        share = partial(_share, plan, of_egress, of_instances)
        tried = replace(tried, cost=share(tried.cost, tried.copied_bytes))
        cost = share(result.cost, result.copied_bytes)
        found[url] = replace(result, cost=cost, this_try=tried)
    return found


def _share(
    plan: TransferPlan, of_egress: float, of_instances: float, cost: CostOutcome, copied_bytes: int
) -> CostOutcome:
    egress_usd, instance_usd = cost.egress_usd * of_egress, cost.instance_usd * of_instances
    own = replace(cost, egress_usd=egress_usd, instance_usd=instance_usd)
    return with_other_items(own, plan, copied_bytes)
