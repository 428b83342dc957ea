"""Plan and result of the demo as text."""

from __future__ import annotations

from collections.abc import Iterator

from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult


def plan_lines(plan: TransferPlan, direct: TransferPlan) -> Iterator[str]:
    """The plan, and the direct path with one instance at each end."""
    yield (
        f"plan: {plan.src} to {plan.dst} at {plan.throughput_gbps:.2f} Gbit/s "
        f"for {plan.cost.usd_per_gb:.4f} USD/GB"
    )
    yield (
        f"  direct would be {direct.throughput_gbps:.2f} Gbit/s for "
        f"{direct.cost.usd_per_gb:.4f} USD/GB"
    )
    for region, group in plan.instances.items():
        role = "source" if region == plan.src else "sink" if region == plan.dst else "relay"
        yield f"  {group.count} x {group.type:<14} {region:<22} {role}"
    for path in plan.paths:
        yield f"  {path.flow_gbps:5.2f} Gbit/s  {' > '.join(path.regions)}"
    yield f"  grid {plan.grid.name} of {plan.grid.as_of}, throughput {plan.grid.throughput}"


def result_lines(plan: TransferPlan, result: TransferResult) -> Iterator[str]:
    """The result, and for each edge its planned and achieved share of the bytes.

    All regions are one machine, so shares can be compared, but rates cannot.
    """
    yield (
        f"result: {result.state}, {result.copied} of {result.objects} objects, "
        f"{result.copied_bytes} bytes in {result.seconds:.1f} s "
        f"({result.goodput_gbps:.2f} Gbit/s, planned {result.planned_gbps:.2f})"
    )
    cost = result.cost
    yield (
        f"  planned cost {cost.total_usd:.4f} USD: egress {cost.egress_usd:.4f}, "
        f"instances {cost.instance_usd:.4f}, requests {cost.request_usd:.4f}, "
        f"other items {sum(cost.other_usd.values()):.4f}"
    )
    yield f"  {'edge':<40} {'planned':>17} {'achieved':>17}"
    for edge in result.edges:
        planned = edge.planned_gbps / plan.throughput_gbps
        achieved = edge.sent_bytes / result.copied_bytes if result.copied_bytes else 0.0
        yield (
            f"  {edge.src + ' > ' + edge.dst:<40} {edge.planned_gbps:6.2f} Gb/s {planned:5.0%} "
            f"{edge.achieved_gbps:6.2f} Gb/s {achieved:5.0%}"
        )
    for failure in result.failures:
        yield f"  failed: {failure.source}: {failure.reason}"
    for warning in result.warnings:
        yield f"  warning: {warning}"
