"""What is asked of a problem with several destinations, objective by objective."""

from __future__ import annotations

from dataclasses import dataclass

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.model.job import (
    Deadline,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.planner.constraint_names import (
    COST_CEILING,
    DEADLINE,
    NO_ROUTE,
    POLICY_MAX_JOB_USD,
)
from skyplane_orchestration.planner.infeasibility import rounded_down, rounded_up
from skyplane_orchestration.planner.multicast.build_plan import (
    Order,
    Shared,
    binding_of,
    cost_of,
    decoded,
)
from skyplane_orchestration.planner.multicast.problem import MulticastProblem
from skyplane_orchestration.planner.multicast.search import (
    Found,
    cheapest,
    fastest,
    largest_throughput,
)
from skyplane_orchestration.planner.objectives import LEAST_GBPS
from skyplane_orchestration.planner.pricing import billing
from skyplane_orchestration.units import (
    gb_to_gbit,
    usd_per_gb_to_usd_per_gbit,
    usd_per_gbit_to_usd_per_gb,
)

#: The rate from which the cheapest price of any plan at all is looked for.
_ANY_RATE_GBPS = 0.1
#: The fastest for a whole bill: steps of bisection, and how near the rate is near enough.
_BILL_STEPS, _NEAR = 10, 1e-3
_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be built, the value that the objective gives it, and the proven bound."""

    shared: Shared
    value: float
    bound: float


@dataclass(frozen=True, slots=True)
class Question:
    """One order on one problem."""

    order: Order
    problem: MulticastProblem
    proof_s: float

    def floor_gbps(self, objective: Objective) -> float:
        """The rate that the objective asks for; nothing in particular for a ceiling."""
        if isinstance(objective, MinimizeCost):
            return max(objective.min_throughput_gbps, LEAST_GBPS)
        if isinstance(objective, MaximizeThroughput):
            return _ANY_RATE_GBPS
        # A relay may lie in the slowest cloud, so the slowest cloud is what is waited for.
        wait_s = billing.provision_s(self.problem.tags)
        if objective.seconds <= wait_s:
            raise PlanInfeasible(
                f"gateways take about {wait_s:g} s to come up, which leaves nothing of the"
                f" deadline of {objective.seconds:g} s; allow more time",
                binding=(DEADLINE,),
            )
        return max(self._gbit / (objective.seconds - wait_s), LEAST_GBPS)

    # ------------------------------------------------------------ cheapest

    def cheapest(self, objective: MinimizeCost | Deadline) -> Answer:
        """Value and bound are USD for the job; USD per GB without a volume and for `exactly`."""
        exactly = isinstance(objective, MinimizeCost) and objective.exactly
        problem = self._from(self.floor_gbps(objective))
        if exactly or self.order.volume_gb is None:
            found = cheapest(problem, exactly=exactly, proof_s=self.proof_s)
            if found is None:
                raise self._infeasible(problem)
            shared = decoded(problem, found.integers)
            price = shared.usd_per_gb(self.order)
            return Answer(shared, price, min(usd_per_gbit_to_usd_per_gb(found.bound), price))
        return self._cheapest_job(problem)

    def _cheapest_job(self, problem: MulticastProblem) -> Answer:
        """The least total that was found: at the floor itself, or at some rate above it.

        Boot and minimum billing make instances dearer, the more so the faster the transfer:
        with what they cost at the floor, waiting for the ends alone, nothing is cheaper than
        the relaxation at the floor.
        """
        ends = [self.order.src, *self.order.destinations]
        floor_s = self._gbit / problem.goal_gbps
        paid = problem.with_overhead(
            billing.overhead(problem.tags, floor_s, billing.provision_s(ends))
        )
        found = [
            one
            for exactly in (False, True)
            if (one := cheapest(paid, exactly=exactly, proof_s=self.proof_s)) is not None
        ]
        if not found:
            raise self._infeasible(problem)
        answers = [decoded(problem, one.integers) for one in found]
        totals = [self._total_usd(shared) for shared in answers]
        best = min(range(len(found)), key=totals.__getitem__)
        bound = found[0].bound * self._gbit + (self.order.requests_usd or 0.0)
        return Answer(answers[best], totals[best], min(bound, totals[best]))

    # ------------------------------------------------------------ fastest

    def fastest(self, objective: MaximizeThroughput) -> Answer:
        """Value and bound are Gbit/s."""
        if objective.max_usd_per_gb is None:
            return self._fastest_for(objective.max_cost_usd or 0.0)
        found = fastest(self.problem, usd_per_gb_to_usd_per_gbit(objective.max_usd_per_gb))
        if found is None:
            least = rounded_up(self._least_usd_per_gb())
            raise PlanInfeasible(
                f"no plan from {self._route} costs {objective.max_usd_per_gb:g} USD per GB or"
                f" less; the cheapest costs {least:g} USD per GB. Raise the ceiling",
                binding=(COST_CEILING,),
            )
        rate = found.integers.throughput_gbps
        return Answer(decoded(self.problem, found.integers), rate, max(found.bound, rate))

    def _fastest_for(self, max_usd: float) -> Answer:
        """The fastest whose whole bill is at most `max_usd`, by bisection on the rate.

        Boot and minimum billing cost more per GB, the faster the transfer. With what they
        cost at one rate, an answer up to that rate pays its bill, and where none reaches it
        no rate above it does. Relays are taken to be as slow to come up as any; where the
        ends are as slow, that is proof.
        """
        ceiling = (max_usd - (self.order.requests_usd or 0.0)) / self._gbit
        free = fastest(self.problem, ceiling)
        ends = [self.order.src, *self.order.destinations]
        waits_as_long = billing.provision_s(ends) == billing.provision_s(self.problem.tags)
        high = bound = 0.0 if free is None else free.bound
        best: Found | None = None
        at = high
        for _ in range(_BILL_STEPS if free is not None else 0):
            found = fastest(self._billed_at(at), ceiling)
            rate = 0.0 if found is None else found.integers.throughput_gbps
            if best is None or rate > best.integers.throughput_gbps:
                best = found
            if rate < at * (1 - _NEAR):
                high = at
                if waits_as_long and (found is None or found.bound < at):
                    bound = min(bound, at)
            low = 0.0 if best is None else best.integers.throughput_gbps
            if high - low <= _NEAR * high:
                break
            at = (low + high) / 2
        if best is None:
            raise PlanInfeasible(
                f"no plan from {self._route} was found for {max_usd:g} USD with boot, minimum"
                " billing and requests. Raise the ceiling or move less",
                binding=(COST_CEILING,),
            )
        rate = best.integers.throughput_gbps
        return Answer(decoded(self.problem, best.integers), rate, max(bound, rate))

    def _billed_at(self, gbps: float) -> MulticastProblem:
        """Up to this rate, with what instances cost in all where the transfer is that fast."""
        tags = self.problem.tags
        paid = billing.overhead(tags, self._gbit / gbps, billing.provision_s(tags))
        return self.problem.with_overhead(paid).with_goal(self.problem.goal_gbps, gbps)

    # ------------------------------------------------------------ refusals

    def check_policy(self, shared: Shared, policy: Policy) -> None:
        """Raises PlanInfeasible for a plan that costs more than the policy lets a job cost."""
        if policy.max_job_usd is None:
            return
        total = self._total_usd(shared)
        if total > policy.max_job_usd * (1 + _SAME):
            raise PlanInfeasible(
                f"the plan from {self._route} that does what is asked costs {total:.2f} USD with"
                f" boot, minimum billing and requests; {POLICY_MAX_JOB_USD} is"
                f" {policy.max_job_usd:g}. Raise the policy, ask for less or move less",
                binding=(POLICY_MAX_JOB_USD,),
            )

    @property
    def _route(self) -> str:
        return f"{self.order.src} to {', '.join(self.order.destinations)}"

    @property
    def _gbit(self) -> float:
        return gb_to_gbit(self.order.volume_gb or 0.0)

    def _total_usd(self, shared: Shared) -> float:
        return cost_of(self.order, self.problem, shared).total_usd or 0.0

    def _from(self, goal_gbps: float) -> MulticastProblem:
        return self.problem.with_goal(goal_gbps, self.problem.most_gbps)

    def _least_usd_per_gb(self) -> float:
        problem = self._from(min(_ANY_RATE_GBPS, self.problem.most_gbps))
        found = cheapest(problem, exactly=False, proof_s=0.0)
        if found is None:
            raise self._infeasible(problem)
        return usd_per_gbit_to_usd_per_gb(found.integers.usd_per_gbit)

    def _infeasible(self, problem: MulticastProblem) -> PlanInfeasible:
        """The error for a goal that nothing reaches: what binds, and how much would go."""
        largest = largest_throughput(problem)
        if largest is None:
            return PlanInfeasible(
                f"there is no way from {self._route}: the grid has no usable edge, an end may"
                " have no instance, or the policy leaves no relay",
                binding=(NO_ROUTE,),
                most_gbps=0.0,
            )
        most = rounded_down(largest.integers.throughput_gbps)
        names = binding_of(problem, decoded(problem, largest.integers), largest.relaxed)
        goal = f"{problem.goal_gbps:g} Gbit/s from {self._route}"
        is_proven = problem.goal_gbps > largest.bound_gbps
        words = f"no plan moves {goal}" if is_proven else f"no plan that moves {goal} was found"
        return PlanInfeasible(
            f"{words}; the most that was found is {most:g} Gbit/s, and"
            f" {largest.bound_gbps:.5g} Gbit/s cannot be exceeded. What binds:"
            f" {', '.join(names)}. Ask for less, raise the limits, choose larger instance"
            " types, or let more regions relay",
            binding=names,
            most_gbps=most,
        )
