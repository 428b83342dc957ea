"""Plans, results and fleets as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from skyplane_orchestration.cli.console import printable
from skyplane_orchestration.formatting import counted, duration, rate, size, throughput, usd, volume
from skyplane_orchestration.model.fleet import where_gateways_run

if TYPE_CHECKING:
    from skyplane_orchestration.model.plan import PlanCost, TransferPlan
    from skyplane_orchestration.model.result import TransferResult

#: Rows of a dry run and failures of a result that a person is shown; JSON has all.
SHOWN_ROWS: Final = 20


def earlier(count: int) -> str:
    """How many of the copied objects an earlier epoch copied; nothing for none."""
    return f", {count} copied earlier" if count else ""


def unfinished(count: int) -> str:
    """How many objects the transfer ended before; nothing for none."""
    return f", {count} unfinished" if count else ""


def plain(text: str) -> Text:
    """A line without markup, whatever characters its keys hold."""
    return Text(printable(text))


def facts(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values, without lines."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(name, escape(printable(value)))
    return table


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A plain table; columns whose name ends in a unit or is a number are right-aligned."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name = column.removeprefix(">")
        made.add_column(name, justify="right" if column != name else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(escape(printable(str(cell))) for cell in row))
    return made


# ---------------------------------------------------------------- a plan


def plan_parts(plan: TransferPlan) -> tuple[Table | Text, ...]:
    """What `plan` prints."""
    cost = plan.cost
    rows = [
        ("from", plan.src),
        ("to", plan.dst),
        ("throughput", f"{plan.throughput_gbps:.2f} Gbit/s"),
        ("price", f"{usd(cost.usd_per_gb)} per GB (egress and instances)"),
    ]
    if plan.volume_gb is not None:
        rows += [
            ("volume", volume(plan.volume_gb)),
            ("time", f"{duration(plan.transfer_s)}, after {duration(plan.provision_s)} to start"),
            ("cost", cost_items(cost)),
        ]
    if plan.binding:
        rows.append(("bound by", ", ".join(plan.binding)))
    if plan.solver.status == "feasible":
        rows.append(("proven", f"nothing is better by more than {plan.solver.gap:.2%}"))
    rows.append(
        ("grid", f"{plan.grid.name} of {plan.grid.as_of}, throughput {plan.grid.throughput}")
    )
    paths = table(
        ("path", ">Gbit/s"),
        [(" -> ".join(path.regions), rate(path.flow_gbps)) for path in plan.paths],
    )
    instances = table(
        ("region", ">instances", "type"),
        [(tag, group.count, group.type) for tag, group in plan.instances.items()],
    )
    notes = tuple(plain(f"note: {note}") for note in plan.notes)
    return (facts(rows), Text(), paths, Text(), instances, *notes)


def cost_items(cost: PlanCost) -> str:
    """The total and what it is made of; an item that costs nothing by nature is left out."""
    items = [
        ("egress", cost.egress_usd),
        ("instances", cost.instance_usd),
        ("boot", cost.boot_usd),
        ("minimum billing", cost.minimum_billing_usd or None),
    ]
    named = [f"{name} {usd(amount)}" for name, amount in items if amount is not None]
    requests = f"requests {usd(cost.request_usd)}"
    return f"{usd(cost.total_usd)} = {' + '.join([*named, requests])}"


def sentence_parts(sentences: Sequence[str]) -> tuple[Text, ...]:
    """Sentences below a plan, each on its own line; nothing for none."""
    return (Text(), *(plain(sentence) for sentence in sentences)) if sentences else ()


# ---------------------------------------------------------------- objects


def preview_parts(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> list[Any]:
    """What `cp --dry-run` prints."""
    shown = table(
        ("action", ">bytes", "source", "destination", "why"),
        [
            (row["action"], row["bytes"], row["source"], row["destination"], row["reason"])
            for row in rows[:SHOWN_ROWS]
        ],
    )
    parts: list[Any] = [shown]
    if len(rows) > SHOWN_ROWS:
        parts.append(plain(f"... and {len(rows) - SHOWN_ROWS} more (--json lists all)"))
    parts.append(
        plain(
            f"{counted(summary['objects'], 'object')}: {summary['copy']} to copy"
            f" ({size(summary['copy_bytes'])}), {summary['skip']} to skip,"
            f" {summary['refuse']} refused; nothing was written"
        )
    )
    return parts


def result_parts(result: TransferResult) -> list[Any]:
    """What a transfer prints when it has ended."""
    if not result.used_gateways:
        stay = "stays as it is" if result.objects == 1 else "stay as they are"
        kept = f"{counted(result.objects, 'object')} {stay}; no gateways were needed"
        return [plain(f"nothing to do: {kept} ({duration(result.seconds)})")]
    parts: list[Any] = [
        plain(
            f"{result.state}: {result.copied} of {result.objects} objects copied"
            f" ({size(result.copied_bytes)}{earlier(result.copied_earlier)}),"
            f" {result.skipped} skipped, {result.failed} failed"
            f"{unfinished(result.unfinished)}"
        ),
        plain(
            f"{duration(result.seconds)}, {throughput(result.goodput_gbps)}"
            f" (planned {throughput(result.planned_gbps)}),"
            f" planned cost {usd(result.cost.total_usd)}"
        ),
        plain(where_gateways_run(result.gateways)),
    ]
    own = result.this_try
    if own.seconds < result.seconds:
        parts.append(
            Text(
                f"this try: {counted(own.copied, 'object')} ({size(own.copied_bytes)}) in"
                f" {duration(own.seconds)}, planned cost {usd(own.cost.total_usd)}"
            )
        )
    if result.failures:
        parts.append(failure_table(result))
    parts += [plain(f"warning: {warning}") for warning in result.warnings]
    if result.manifest_uri:
        parts.append(plain(f"manifest: {result.manifest_uri}"))
    return parts


def failure_table(result: TransferResult, limit: int = SHOWN_ROWS) -> Table:
    """The first failed objects of a result and their reasons."""
    rows = [(row.destination, row.code, row.reason) for row in result.failures[:limit]]
    made = table(("failed object", "code", "reason"), rows)
    made.columns[-1].no_wrap = False  # A reason is read to its end, where it says what to do.
    return made
