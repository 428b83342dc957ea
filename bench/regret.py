"""Whether plans on the shipped grid keep their word, judged by measured grids.

    python -m bench.regret [GRID_DIR ...] [--pairs N] [--json]

Every directory is judged by itself; without one, the grid of January 2022 beside the repository.
Plans take external addresses within Google Cloud where its rates are those of such addresses.
Plans use the shipped prices, instance types and limits, one instance per region, and the edges that
the directory has measured. For each of the seed's ordered pairs:

1. Under a ceiling of `CEILING` times the direct path's price per GB: the fastest plan.
2. Above a floor of `FLOOR` times the best rate that the measured rates allow under that ceiling:
   the cheapest plan. It is always feasible, so a refusal is a miss.
3. Both again by `plan_measured`, after a probe of the edges that `edges_to_probe` names. Their
   rates are measured with noise (normal, standard deviation `NOISE`, seeded).

What a plan really delivers is the largest flow that its own connections and instances carry at the
measured rates, with egress at the planned ceiling's price at most, since a lead keeps that. It pays
for that flow and for all of its instances: a slow one may break the ceiling by its instances.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import linprog

from bench.fit_throughput_model import has_internal_addresses
from bench.planner_grids import MEASURED_DIR
from bench.report import Case, finish
from skyplane_orchestration.cli.main import keep_stdout
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.throughput_model import between_external_addresses
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.job import (
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    TransferJob,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan
from skyplane_orchestration.planner.baselines import direct
from skyplane_orchestration.provision.routes import edges_to_probe
from skyplane_orchestration.transfer.measured_plan import ProbeCost, plan_measured
from skyplane_orchestration.transfer.probe import PROBE_S
from skyplane_orchestration.units import (
    usd_per_gb_to_usd_per_gbit,
    usd_per_gbit_to_usd_per_gb,
    usd_per_hour_to_usd_per_s,
)

SEED: Final = 20220129
PAIRS: Final = 150
CEILING, FLOOR, NOISE = 1.25, 0.8, 0.05
ONE_INSTANCE: Final = Limits(instance_limit=1)
#: Where the job has its objects does not matter: its plans name the regions.
JOB: Final = TransferJob(Location("s3://from/"), Location("s3://to/"), limits=ONE_INSTANCE)
#: Connections of the measurement of a rate.
MEASURED_OVER: Final = 64
#: Weight of USD per Gbit against Gbit/s: of equal flows the cheapest is real.
_MONEY_WEIGHT: Final = 1e-5
#: A figure that is off by less is no miss.
_SLACK, _WIDE_SLACK = 0.01, 0.05


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a plan carries at measured rates, and what a GB of it costs."""

    gbps: float
    usd_per_gb: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One pair. A plan that was refused has delivered nothing.

    Attributes:
        best_gbps: the most under the ceiling at measured rates; direct_gbps: of the direct path.
        expected_gbps, promised_gbps: of the plan under the ceiling, before the probe.
        unprobed, probed: what it delivers as planned first, and as planned after a probe.
        floor, floor_probed: what the plan above the floor delivers; floor_today: of the plan that
            takes modelled rates for certain.
    """

    src: str
    dst: str
    ceiling_usd_per_gb: float
    floor_gbps: float
    best_gbps: float
    direct_gbps: float
    expected_gbps: float
    promised_gbps: float
    unprobed: Delivered
    probed: Delivered
    floor: Delivered
    floor_probed: Delivered
    floor_today: Delivered

    @property
    def clouds(self) -> str:
        return ">".join(tag.partition(":")[0] for tag in (self.src, self.dst))


NOTHING: Final = Delivered(0.0, np.inf)


def delivered(made: TransferPlan, truth: Grid) -> Delivered:
    """The largest flow over a plan's connections and instances, by the rule of a lead.

    Its egress costs no more on average than the plan's ceilings leave for it.
    """
    edges = made.edges
    out = np.array([float(edge.src == made.src) for edge in edges])
    price = usd_per_gb_to_usd_per_gbit(1.0) * np.array([edge.usd_per_gb for edge in edges])
    most = [
        float(truth.throughput_gbps[truth.index_of(edge.src), truth.index_of(edge.dst)])
        * edge.connections
        / MEASURED_OVER
        for edge in edges
    ]
    rows, bounds, balance = [], [], []
    usd_per_s = 0.0
    for tag, group in made.instances.items():
        kind = truth.instance_type(tag.partition(":")[0], group.type)
        inward = np.array([float(edge.dst == tag) for edge in edges])
        outward = np.array([float(edge.src == tag) for edge in edges])
        rows += [inward, outward]
        bounds += [kind.ingress_gbps * group.count, kind.egress_gbps * group.count]
        usd_per_s += usd_per_hour_to_usd_per_s(kind.usd_per_hour) * group.count
        if tag not in (made.src, made.dst):
            balance.append(inward - outward)
    if made.egress_ceiling_usd_per_gb is not None:
        rows.append(price - usd_per_gb_to_usd_per_gbit(made.egress_ceiling_usd_per_gb) * out)
        bounds.append(0.0)
    found = linprog(
        _MONEY_WEIGHT * price - out,
        A_ub=np.array(rows),
        b_ub=bounds,
        A_eq=np.array(balance) if balance else None,
        b_eq=np.zeros(len(balance)) if balance else None,
        bounds=[(0.0, one) for one in most],
    )
    if found.x is None:
        return NOTHING
    gbps = float(out @ found.x)
    if gbps <= 0:
        return NOTHING
    usd_per_gbit = (float(price @ found.x) + usd_per_s) / gbps
    return Delivered(gbps, usd_per_gbit_to_usd_per_gb(usd_per_gbit))


@dataclass(frozen=True, slots=True)
class Judge:
    """The shipped grid, on the edges that a grid has measured, with modelled and real rates."""

    name: str
    tags: tuple[str, ...]
    modelled: Grid
    truth: Grid

    @classmethod
    def of(cls, measured: Grid) -> Judge:
        """Raises UnknownRegion for a region that the shipped grid does not have."""
        shipped = load_grid()
        if not has_internal_addresses(measured):
            shipped = between_external_addresses(shipped)
        place = np.array([shipped.index_of(tag) for tag in measured.tags])
        rates = np.zeros_like(shipped.throughput_gbps)
        rates[np.ix_(place, place)] = np.where(measured.measured, measured.throughput_gbps, 0.0)
        known = rates > 0
        modelled = np.where(known, shipped.throughput_gbps, 0.0)
        return cls(
            measured.name,
            measured.tags,
            shipped.with_edges(throughput_gbps=modelled),
            shipped.with_edges(throughput_gbps=rates, measured=known),
        )

    def judge(self, src: str, dst: str, noise: random.Random) -> Verdict:
        """Plan one pair under the ceiling and above the floor, and look what it delivers."""
        ceiling = CEILING * direct(self.modelled, src, dst, limits=ONE_INSTANCE).cost.usd_per_gb
        fastest = MaximizeThroughput(max_usd_per_gb=ceiling)
        best = plan(self.truth, src, dst, fastest, limits=ONE_INSTANCE).throughput_gbps
        cheapest = MinimizeCost(FLOOR * best)
        made = plan(self.modelled, src, dst, fastest, limits=ONE_INSTANCE)
        again = self.plan_probed(made, noise)
        real_direct = direct(self.truth, src, dst, limits=ONE_INSTANCE).throughput_gbps
        above = self.plan_above(src, dst, cheapest, ONE_INSTANCE)
        floor, floor_probed = NOTHING, NOTHING
        if above is not None:
            floor = delivered(above, self.truth)
            floor_probed = delivered(self.plan_probed(above, noise), self.truth)
        today = self.plan_above(src, dst, cheapest, replace(ONE_INSTANCE, confidence=0.5))
        return Verdict(
            src=src,
            dst=dst,
            ceiling_usd_per_gb=ceiling,
            floor_gbps=FLOOR * best,
            best_gbps=best,
            direct_gbps=real_direct,
            expected_gbps=made.throughput_gbps,
            promised_gbps=made.promised_gbps or made.throughput_gbps,
            unprobed=delivered(made, self.truth),
            probed=delivered(again, self.truth),
            floor=floor,
            floor_probed=floor_probed,
            floor_today=NOTHING if today is None else delivered(today, self.truth),
        )

    def real_gbps(self, src: str, dst: str) -> float:
        return float(self.truth.throughput_gbps[self.truth.index_of(src), self.truth.index_of(dst)])

    def plan_above(
        self, src: str, dst: str, objective: Objective, limits: Limits
    ) -> TransferPlan | None:
        """None for a refusal."""
        try:
            return plan(self.modelled, src, dst, objective, limits=limits)
        except PlanInfeasible:
            return None

    def plan_probed(self, made: TransferPlan, noise: random.Random) -> TransferPlan:
        """The plan after a probe of its fleet; the same one if no other keeps the ceiling."""
        measured = [
            EdgeMeasurement(
                src,
                dst,
                self.real_gbps(src, dst) * max(0.0, noise.gauss(1.0, NOISE)),
                connections=MEASURED_OVER,
                instances=1,
                seconds=PROBE_S,
                bytes=0,
                at_unix_s=0.0,
            )
            for src, dst in edges_to_probe(made)
        ]
        try:
            return plan_measured(self.modelled, JOB, made, measured, ProbeCost(), {})
        except PlanInfeasible:
            return made


def verdicts(measured: Grid, count: int) -> list[Verdict]:
    """The first `count` pairs of the seed's sequence."""
    judge = Judge.of(measured)
    chooser, noise = random.Random(SEED), random.Random(SEED)
    pairs = [chooser.sample(judge.tags, 2) for _ in range(count)]
    return [judge.judge(src, dst, noise) for src, dst in pairs]


def _of_best(name: str, shares: Sequence[float], floors: Sequence[float]) -> list[Case]:
    low_median, low_tenth, goal_median, goal_tenth = floors
    return [
        Case(
            f"{name}: {what}",
            float(np.quantile(shares, share)),
            "of the best",
            floor=floor,
            goal=goal,
        )
        for what, share, floor, goal in (
            ("median", 0.5, low_median, goal_median),
            ("tenth percentile", 0.1, low_tenth, goal_tenth),
        )
    ]


def missed(
    name: str,
    found: Sequence[Verdict],
    miss: Callable[[Verdict], str],
    floor: float | None = None,
    goal: float | None = None,
) -> Case:
    """The share of pairs that miss, with the misses by pair of clouds and one by one.

    Args:
        miss: words for the miss of a pair; empty for none.
    """
    every = [(one, miss(one)) for one in found]
    wrong = [(one, what) for one, what in every if what]
    by_clouds = Counter(one.clouds for one, _ in wrong)
    of_clouds = Counter(one.clouds for one in found)
    kinds = [f"{kind} {count} of {of_clouds[kind]}" for kind, count in by_clouds.most_common()]
    pairs = [f"{one.src} > {one.dst} {what}" for one, what in wrong]
    against = "; ".join([", ".join(kinds), *pairs]) if wrong else None
    share = 100.0 * len(wrong) / len(found)
    return Case(name, share, "% of pairs", against=against, floor=floor, goal=goal)


def cases_of(name: str, found: Sequence[Verdict]) -> list[Case]:
    """All figures of one grid."""
    ceiling = f"{name}, real over best with the ceiling kept"
    promises = [one.promised_gbps / one.expected_gbps for one in found]
    kept = [one.unprobed.gbps / one.promised_gbps for one in found]
    dearer = [
        one.floor.usd_per_gb / one.floor_today.usd_per_gb
        for one in found
        if one.floor.gbps > 0 and one.floor_today.gbps > 0
    ]

    def broken(real: Callable[[Verdict], Delivered]) -> Callable[[Verdict], str]:
        def miss(one: Verdict) -> str:
            over = real(one).usd_per_gb / one.ceiling_usd_per_gb - 1
            return f"{over:+.1%}" if over > _SLACK else ""

        return miss

    def slower(
        real: Callable[[Verdict], Delivered], slack: float = _SLACK
    ) -> Callable[[Verdict], str]:
        return lambda one: _below(real(one), one.direct_gbps, slack)

    def short(real: Callable[[Verdict], Delivered]) -> Callable[[Verdict], str]:
        return lambda one: _below(real(one), one.floor_gbps, _SLACK)

    return [
        *_of_best(
            f"{ceiling}, probed",
            [one.probed.gbps / one.best_gbps for one in found],
            (0.98, 0.88, 0.99, 0.90),
        ),
        *_of_best(
            f"{ceiling}, not probed",
            [one.unprobed.gbps / one.best_gbps for one in found],
            (0.96, 0.71, 0.98, 0.80),
        ),
        Case(
            f"{name}, real over promised, not probed: tenth percentile",
            float(np.quantile(kept, 0.1)),
            "of the promise",
            floor=0.95,
            goal=0.98,
        ),
        Case(
            f"{name}, promised over expected: median",
            float(np.median(promises)),
            "of the expected",
            floor=0.93,
            goal=0.95,
        ),
        Case(
            f"{name}, price really paid above a floor, over a plan without margins: median",
            float(np.median(dearer)),
            "x price",
            floor=1.03,
            goal=1.01,
        ),
        missed(f"{name}, ceiling broken, probed", found, broken(lambda one: one.probed), 1.0, 0.0),
        missed(f"{name}, ceiling broken, not probed", found, broken(lambda one: one.unprobed)),
        missed(
            f"{name}, slower than direct by more than 5 %, probed",
            found,
            slower(lambda one: one.probed, _WIDE_SLACK),
            0.0,
            0.0,
        ),
        missed(
            f"{name}, slower than direct, probed", found, slower(lambda one: one.probed), 3.0, 1.0
        ),
        missed(f"{name}, slower than direct, not probed", found, slower(lambda one: one.unprobed)),
        missed(f"{name}, floor missed", found, short(lambda one: one.floor), 8.0, 3.0),
        missed(
            f"{name}, floor missed, probed", found, short(lambda one: one.floor_probed), 6.0, 3.0
        ),
        missed(f"{name}, floor missed without margins", found, short(lambda one: one.floor_today)),
    ]


def _below(real: Delivered, wanted_gbps: float, slack: float) -> str:
    """The rate of the rate that was wanted; empty if it suffices."""
    if real.gbps >= wanted_gbps * (1 - slack):
        return ""
    return f"{real.gbps:.2f} of {wanted_gbps:.2f} Gbit/s" if real.gbps else "refused"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grids", nargs="*", type=Path, help="directories of measured grids")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of each grid")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    directories = options.grids or [one for one in (MEASURED_DIR,) if one.is_dir()]
    if not directories:
        print(f"no measured grid at {MEASURED_DIR}: nothing is judged", file=sys.stderr)
    cases: list[Case] = []
    for directory in directories:
        measured = load_grid(directory)
        cases += cases_of(measured.name, verdicts(measured, options.pairs))
    return finish("regret", cases, runs=1, as_json=options.json)


if __name__ == "__main__":
    keep_stdout()
    raise SystemExit(main())
