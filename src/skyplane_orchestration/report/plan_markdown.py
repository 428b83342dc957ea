"""A plan as Markdown, for pages that show no HTML."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from skyplane_orchestration import planner
from skyplane_orchestration.model.plan import TransferPlan

#: Characters of the bar of the widest path.
_BAR: Final = 16


def plan_markdown(plan: TransferPlan) -> str:
    """Rate, price and instances, then the paths with bars for their rates."""
    most = max(path.flow_gbps for path in plan.paths)
    paths = [
        f"{path.flow_gbps:6.2f} Gbit/s {_bar(path.flow_gbps / most)} {' → '.join(path.regions)}"
        for path in plan.paths
    ]
    return "\n".join([f"**{plan.in_words}**", "", "```text", *paths, "```"])


def _bar(share: float) -> str:
    return f"{'█' * max(1, round(_BAR * share)):<{_BAR}}"


def plan_image_markdown(plan: TransferPlan) -> str:
    """The picture of a plan, of a few kilobytes, as an image in Markdown."""
    data = b64encode(planner.plan_svg(plan).encode()).decode()
    return f"![plan from {plan.src} to {plan.dst}](data:image/svg+xml;base64,{data})"
