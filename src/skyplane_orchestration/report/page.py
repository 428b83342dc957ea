"""The page about a task: what was planned, where it runs, what came of it."""

from __future__ import annotations

import json
from typing import Final

from skyplane_orchestration import planner
from skyplane_orchestration.formatting import counted, duration, rate, size, throughput, usd, volume
from skyplane_orchestration.model.fleet import Fleet, where_gateways_run
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.report import html
from skyplane_orchestration.report.html import Html
from skyplane_orchestration.report.task_documents import TaskDocuments

#: Anchors of the sections.
PLAN, FLEET, TRANSFER, LINEAGE = "plan", "fleet", "transfer", "lineage"

_RATES: Final = "flow, Gbit/s"
_RATES_OF_EDGES: Final = ("modelled", "probed", "planned", "achieved")
_IN_PLACE: Final = "A cloud refused the plan of this task. The fleet of task {} runs this plan."


def report_page(title: str, documents: TaskDocuments) -> str:
    """An HTML document with a section for each document that there is."""
    parts: list[Html] = []
    if documents.problems:
        parts.append(html.bullets(documents.problems))
    if documents.result:
        parts.append(_transfer(documents.result))
    if documents.plan:
        parts.append(_plan(documents.plan, documents.runs_in))
    if documents.fleet:
        parts.append(_fleet(documents.fleet))
    if documents.lineage:
        lineage = json.dumps(documents.lineage, indent=2, ensure_ascii=False, default=str)
        parts.append(html.section(LINEAGE, "Lineage", html.preformatted(lineage)))
    if not parts:
        parts.append(html.paragraph("This task has left no plan, no fleet and no result."))
    return html.page(title, *parts)


def notebook_view(shown: TransferPlan | TransferResult) -> str:
    """A part of a page, for `_repr_html_`."""
    return _plan(shown) if isinstance(shown, TransferPlan) else _transfer(shown)


# ---------------------------------------------------------------- the plan


def _plan(plan: TransferPlan, runs_in: str = "") -> Html:
    summary = {
        "from, to": f"{plan.src} to {plan.dst}",
        "throughput": throughput(plan.throughput_gbps),
        "expected": None if plan.expected_gbps is None else throughput(plan.expected_gbps),
        "promised": None if plan.promised_gbps is None else throughput(plan.promised_gbps),
        "volume": None if plan.volume_gb is None else volume(plan.volume_gb),
        "objects": plan.objects,
        "transfer": duration(plan.transfer_s),
        "provisioning": duration(plan.provision_s),
        "price": f"{plan.cost.usd_per_gb:.4f} USD per GB",
        "limits that bind": ", ".join(plan.binding),
        "grid": f"{plan.grid.name} of {plan.grid.as_of}, {plan.grid.throughput} rates",
        "solver": f"{plan.solver.status}, gap {plan.solver.gap:.2%}, {plan.solver.solve_s:.2f} s",
    }
    remarks = (*(refused.warning for refused in plan.refused), *plan.notes)
    return html.section(
        PLAN,
        "Plan",
        html.paragraph(_IN_PLACE.format(runs_in)) if runs_in else Html(""),
        Html(planner.plan_svg(plan)),
        html.facts(summary),
        _planned_cost(plan),
        html.table(
            ["region", "instances", "type", "USD per hour"],
            [
                [tag, group.count, group.type, f"{group.usd_per_hour:.4f}"]
                for tag, group in plan.instances.items()
            ],
        ),
        html.table(
            ["edge", _RATES, "one instance pair, Gbit/s", "connections", "USD per GB"],
            [
                [
                    f"{edge.src} to {edge.dst}",
                    rate(edge.flow_gbps),
                    rate(edge.capacity_gbps),
                    edge.connections,
                    f"{edge.usd_per_gb:.4f}",
                ]
                for edge in plan.edges
            ],
        ),
        html.table(
            ["path", _RATES],
            [[" to ".join(path.regions), rate(path.flow_gbps)] for path in plan.paths],
        ),
        html.bullets(remarks),
    )


def _planned_cost(plan: TransferPlan) -> Html:
    cost = plan.cost
    items = {
        "egress": cost.egress_usd,
        "instances": cost.instance_usd,
        "instances while they boot": cost.boot_usd,
        "minimum billing": cost.minimum_billing_usd,
        "requests": cost.request_usd,
        **cost.other_usd,
        "total": cost.total_usd,
    }
    return html.table(["planned cost", "USD"], [[name, usd(item)] for name, item in items.items()])


# ---------------------------------------------------------------- the fleet


def _fleet(fleet: Fleet) -> Html:
    summary = {
        "fleet key": fleet.key,
        "deployment": fleet.deployment,
        "generation": fleet.generation,
        "size": fleet.size,
        "where": where_gateways_run(fleet.provisioner),
        "up after": duration(fleet.provision_s),
    }
    consoles = [
        [tag, html.link(url, "instances in the cloud's console")]
        for tag, url in fleet.console_urls.items()
    ]
    gateways = [[gateway.node, gateway.region] for gateway in fleet.gateways]
    instances = [[one.name, one.region, one.cloud_id] for one in fleet.instances]
    return html.section(
        FLEET,
        "Fleet",
        html.facts(summary),
        html.table(["region", "console"], consoles),
        html.table(["instance", "region", "id in the cloud"], instances),
        html.table(["gateway", "region"], gateways),
    )


# ---------------------------------------------------------------- the transfer


def _transfer(result: TransferResult) -> Html:
    summary = {
        "state": result.state,
        "error": result.error,
        "from": result.source,
        "to": result.destination,
        "transfer key": result.transfer_key,
        "epoch": result.epoch,
        "where": where_gateways_run(result.gateways),
        "time": duration(result.seconds),
        "goodput": f"{throughput(result.goodput_gbps)}, planned {throughput(result.planned_gbps)}",
        "manifest": result.manifest_uri,
    }
    rows = [
        [one.source, one.destination, one.code, one.reason, one.attempts] for one in result.failures
    ]
    edges = []
    for edge in result.edges:
        gbps = (getattr(edge, f"{one}_gbps") for one in _RATES_OF_EDGES)
        rates = ("" if one is None else rate(one) for one in gbps)
        edges.append([f"{edge.src} to {edge.dst}", *rates, size(edge.sent_bytes)])
    more = f"{counted(result.failed - len(rows), 'more object')} failed; the manifest has all."
    return html.section(
        TRANSFER,
        "Transfer",
        html.facts(summary),
        _counts(result),
        html.table(["edge", *(f"{one}, Gbit/s" for one in _RATES_OF_EDGES), "sent"], edges),
        _cost(result),
        html.table(["failed object", "destination", "code", "reason", "tries"], rows),
        html.paragraph(more) if rows and result.failed > len(rows) else Html(""),
        html.bullets(result.warnings),
    )


def _counts(result: TransferResult) -> Html:
    own = result.this_try
    counts = {
        "found": result.objects,
        "copied": f"{result.copied} ({size(result.copied_bytes)})",
        "copied earlier": result.copied_earlier or None,
        "copied by this try": f"{own.copied} ({size(own.copied_bytes)}) in {duration(own.seconds)}",
        "skipped": result.skipped,
        "failed": result.failed,
        "not finished": result.unfinished,
        "moved": result.moved or None,
        "deleted at the destination": result.deleted or None,
        "copied by the store itself": result.server_side or None,
        "reserved for journals": result.reserved or None,
    }
    return html.table(
        ["objects", "count"], [[name, n] for name, n in counts.items() if n is not None]
    )


def _cost(result: TransferResult) -> Html:
    whole, own = result.cost, result.this_try.cost
    rows = [
        ["egress", usd(whole.egress_usd), usd(own.egress_usd)],
        ["instances", usd(whole.instance_usd), usd(own.instance_usd)],
        ["requests", usd(whole.request_usd), usd(own.request_usd)],
        *(
            [item, usd(sum_), usd(own.other_usd.get(item))]
            for item, sum_ in whole.other_usd.items()
        ),
        ["total", usd(whole.total_usd), usd(own.total_usd)],
        ["planned total", usd(result.estimated_usd), ""],
    ]
    return html.table(["cost at the plan's prices", "all tries", "this try"], rows)
