"""What the objects of a job let its ends move: an object is a rate, by the size of an average one.

Objectives in time search within these rates, so that the ends have the instances whose gateways
carry the requests, and no more than a store takes. A floor of `MinimizeCost` is the rate of the
network alone, and stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from skyplane_orchestration.grids import InstanceType
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.problem import PlanProblem

#: Lower rates are within the solver's tolerance.
_LEAST_GBPS: Final = 1e-3


def limited_by_objects(request: PlanRequest, problem: PlanProblem) -> PlanProblem:
    """The problem with the rates at which its ends move the job's objects; the goal is at most
    these."""
    work = request.object_work
    if work is None:
        return problem
    # The share of a rate moves the volume.
    volume_gbit = request.volume_gbit / work.share

    def limited(kind: InstanceType, region: int) -> InstanceType:
        seconds = work.seconds_with_one(problem.tags[region], kind)
        if region not in problem.ends or not seconds:
            return kind
        most = max(volume_gbit / seconds, _LEAST_GBPS)
        if region == problem.src:
            return replace(kind, egress_gbps=min(kind.egress_gbps, most))
        return replace(kind, ingress_gbps=min(kind.ingress_gbps, most))

    regions = problem.option_region.tolist()
    types = tuple(map(limited, problem.types, regions))
    most = max(volume_gbit / work.least.seconds, _LEAST_GBPS)
    egress = np.array([kind.egress_gbps for kind in types])
    ingress = np.array([kind.ingress_gbps for kind in types])
    for end in problem.ends:
        rates = (egress if end == problem.src else ingress) * problem.quota
        most = min(most, float(rates[problem.option_region == end].max(initial=0.0)))
    return replace(
        problem,
        types=types,
        egress_gbps=egress,
        ingress_gbps=ingress,
        goal_gbps=min(problem.goal_gbps, most),
        most_gbps=min(problem.most_gbps, most),
        write_gbps=min(problem.write_gbps, most),
    )
