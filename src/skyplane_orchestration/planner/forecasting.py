"""`forecast`: the bill of a month for recurring jobs, by job and by alternative.

Jobs share the tiers of the cloud that they send from: each begins where those before it have ended.
"""

from __future__ import annotations

import calendar
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Literal

from skyplane_gateway.common.schema import as_mapping, check, decode, encode
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.egress_pricing import for_month
from skyplane_orchestration.grids.monthly_volume import MonthlyVolume
from skyplane_orchestration.model.job import (
    KeyRequestsRule,
    MinimizeCost,
    NetworkTierRule,
    Policy,
    ReadStorageClass,
    require_at_least,
    require_positive,
)
from skyplane_orchestration.planner.comparison import compare
from skyplane_orchestration.planner.pricing.instance_billing import cloud_of

SCHEMA_VERSION: Final = 1
Schedule = Literal["hourly", "daily", "weekly", "monthly"]
_HOURS_PER_DAY, _DAYS_PER_WEEK = 24, 7
#: The plan that a job runs with, as a row of `compare`.
CHOSEN: Final = "cheapest"


@dataclass(frozen=True, slots=True)
class ForecastJob:
    """A job that runs again and again.

    Attributes:
        name: of the job.
        src, dst: region tags.
        volume_gb, objects: of one run, in the month `since`.
        schedule: how often it runs.
        runs: runs in a month, in place of the schedule.
        growth_per_month: share by which volume and objects grow each month.
        since: month of the stated volume, such as `2026-11`; empty for the month of the forecast.
        min_throughput_gbps: as for a plan.
        network_tier, source_storage_class, key_requests: see `Policy`.
    """

    name: str
    src: str
    dst: str
    volume_gb: float
    objects: int | None = None
    schedule: Schedule = "monthly"
    runs: int | None = None
    growth_per_month: float = 0.0
    since: str = ""
    min_throughput_gbps: float | None = None
    network_tier: NetworkTierRule = "premium"
    source_storage_class: ReadStorageClass | None = None
    key_requests: KeyRequestsRule = "none"

    def __post_init__(self) -> None:
        check(self)
        require_positive("volume_gb", self.volume_gb)
        require_positive("min_throughput_gbps", self.min_throughput_gbps)
        require_at_least("objects", self.objects, 0)
        require_at_least("runs", self.runs, 0)
        if self.growth_per_month <= -1:
            raise ConfigurationInvalid(
                f"growth_per_month must be a number above -1, not {self.growth_per_month!r}"
            )
        if self.since:
            month_of(self.since, "since")

    def runs_in(self, month: date) -> float:
        """How often it runs in a month."""
        days = calendar.monthrange(month.year, month.month)[1]
        by_schedule = {
            "hourly": days * _HOURS_PER_DAY,
            "daily": days,
            "weekly": days / _DAYS_PER_WEEK,
            "monthly": 1,
        }
        return by_schedule[self.schedule] if self.runs is None else self.runs

    def grown(self, month: date) -> float:
        """The volume of a run in a month, as a multiple of the stated one."""
        since = month_of(self.since, "since") if self.since else month
        months = (month.year - since.year) * 12 + month.month - since.month
        return float((1 + self.growth_per_month) ** months)

    @property
    def policy(self) -> Policy:
        """What its prices depend on."""
        return Policy(
            network_tier=self.network_tier,
            source_storage_class=self.source_storage_class,
            key_requests=self.key_requests,
        )


@dataclass(frozen=True, slots=True)
class MonthlyWay:
    """A way to do a job: a row of `compare`, for the month. None where it is not possible."""

    name: str
    title: str
    relays: tuple[str, ...]
    usd: float | None


@dataclass(frozen=True, slots=True)
class MonthlyBill:
    """The bill of one job: `ways[0]` is the plan that it runs with.

    Attributes:
        runs, run_gb, month_gb: of the month, grown.
        already_gb: what jobs before it have sent to the internet from its cloud.
    """

    name: str
    src: str
    dst: str
    runs: float
    run_gb: float
    month_gb: float
    already_gb: float
    ways: tuple[MonthlyWay, ...]
    notes: tuple[str, ...]

    @property
    def usd(self) -> float:
        return self.ways[0].usd or 0.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """The bill of a month, such as `2026-12`."""

    month: str
    jobs: tuple[MonthlyBill, ...]

    @property
    def usd(self) -> float:
        return sum(job.usd for job in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data, `schema_version` first."""
        jobs = [{**encode(job), "usd": job.usd} for job in self.jobs]
        return {**encode(self, SCHEMA_VERSION), "usd": self.usd, "jobs": jobs}


def month_of(text: str, what: str) -> date:
    """The first day of a month such as `2026-11`. Raises ConfigurationInvalid."""
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError:
        raise ConfigurationInvalid(
            f"{what} must be a month such as 2026-11, not {text!r}"
        ) from None


def jobs_from(document: object) -> tuple[ForecastJob, ...]:
    """The jobs of a file `jobs: [...]`. Raises ConfigurationInvalid."""
    rows = as_mapping(document, "a file of jobs").get("jobs")
    if not isinstance(rows, list) or not rows:
        raise ConfigurationInvalid("a file of jobs has a list `jobs`, with one entry for each job")
    jobs = []
    for number, row in enumerate(rows, 1):
        where = f"job {number}"
        if isinstance(row, Mapping) and isinstance(row.get("name"), str):
            where = f"job {row['name']!r}"
        try:
            jobs.append(decode(ForecastJob, as_mapping(row, where), where))
        except ConfigurationInvalid as error:
            text = error.message
            named = text if where in text else f"{where}: {text}"
            raise ConfigurationInvalid(named) from None
    return tuple(jobs)


def forecast(
    grid: Grid, jobs: Sequence[ForecastJob], month: str, already_this_month_gb: float = 0.0
) -> Forecast:
    """The bill of a month, by job and by alternative.

    Args:
        month: such as `2026-12`.
        already_this_month_gb: what each cloud has sent to the internet before these jobs.

    Raises what `compare` raises, and ConfigurationInvalid for a month that is none.
    """
    first_day = month_of(month, "month")
    sent_gb: defaultdict[str, float] = defaultdict(lambda: already_this_month_gb)
    bills = []
    for job in jobs:
        cloud = cloud_of(job.src)
        bill = _bill(grid, job, first_day, sent_gb[cloud])
        if cloud != cloud_of(job.dst):
            sent_gb[cloud] += bill.month_gb
        bills.append(bill)
    return Forecast(month, tuple(bills))


def _bill(grid: Grid, job: ForecastJob, month: date, already_gb: float) -> MonthlyBill:
    runs, grown = job.runs_in(month), job.grown(month)
    run_gb = job.volume_gb * grown
    # Every run has the average price of all runs of the month.
    priced = for_month(grid, job.policy, MonthlyVolume(already_gb, run_gb * runs))
    goal = None if job.min_throughput_gbps is None else MinimizeCost(job.min_throughput_gbps)
    objects = None if job.objects is None else math.ceil(job.objects * grown)
    found = compare(
        priced, job.src, job.dst, goal, volume_gb=run_gb, objects=objects, policy=job.policy
    )
    chosen = found.way(CHOSEN)
    others = [way for way in found.ways if way is not chosen and not way.reason]
    return MonthlyBill(
        job.name,
        job.src,
        job.dst,
        runs,
        run_gb,
        run_gb * runs,
        already_gb,
        tuple(
            MonthlyWay(way.name, way.title, way.relays, way.total_usd and way.total_usd * runs)
            for way in (chosen, *others)
        ),
        chosen.plan.notes if chosen.plan else (),
    )
