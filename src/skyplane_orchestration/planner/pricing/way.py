"""One row of a comparison: what a plan costs, or a service."""

from __future__ import annotations

from dataclasses import dataclass

from skyplane_orchestration.model.plan import TransferPlan

PLAN, SERVICE = "plan", "service"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The source of a fact, `as_of` its date or, without one, the day on which it was read.

    `is_verified`: the source was read and states the fact; otherwise general knowledge.
    """

    source: str
    as_of: str
    is_verified: bool


@dataclass(frozen=True, slots=True)
class Way:
    """One row of a comparison: a plan, or the price of a service.

    Attributes:
        name: `knee`, `cheapest`, `fastest_at_ceiling`, `fastest`, `direct_1`, `direct_n`, `ron_1`,
            `ron_n`, or the name of a service.
        title: the same for people.
        kind: `plan` or `service`.
        throughput_gbps, transfer_s: None for a service: none publishes a rate.
        egress_usd, instance_usd, request_usd, service_usd, other_usd, total_usd: for the volume;
            None where unknown or not applicable. Instances include provisioning time and minimum
            billing; `other_usd` is the sum of a plan's, or retrieval and requests to a key service:
            no service says how it bills packet headers.
        usd_per_gb: per GB (1e9 bytes), without requests and without fees per run.
        relays: regions between the ends.
        reason: why there is no such plan or service; empty if there is one.
        notes: what the row was asked for, and what it does not count.
        plan: the plan; None for a service.
        fee, served: the sources of a service's fee and of its list of routes; None for a plan.
    """

    name: str
    title: str
    kind: str = PLAN
    throughput_gbps: float | None = None
    transfer_s: float | None = None
    egress_usd: float | None = None
    instance_usd: float | None = None
    request_usd: float | None = None
    service_usd: float | None = None
    other_usd: float | None = None
    total_usd: float | None = None
    usd_per_gb: float | None = None
    relays: tuple[str, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    plan: TransferPlan | None = None
    fee: Evidence | None = None
    served: Evidence | None = None
