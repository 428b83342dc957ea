"""Plans, previews and results as tables and lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from skyplane_orchestration.cli.console import printable
from skyplane_orchestration.formatting import counted, duration, rate, size, usd, volume

if TYPE_CHECKING:
    from skyplane_orchestration.model.plan import PlanCost, TransferPlan
    from skyplane_orchestration.model.result import TransferResult

#: Rows of a dry run and failures of a result that are printed; JSON has all.
SHOWN_ROWS: Final = 20


def text_line(text: str) -> Text:
    """A line without markup; control characters are escaped."""
    return Text(printable(text))


def key_values(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(name, escape(printable(value)))
    return table


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, wraps_last: bool = False
) -> Table:
    """A plain table; `>` before a column's name aligns it to the right.

    Args:
        wraps_last: long texts of the last column go on in further lines; otherwise all columns of
            a table that is too wide are cut.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name = column.removeprefix(">")
        made.add_column(name, justify="right" if column != name else "left", no_wrap=True)
    if wraps_last:
        made.columns[-1].no_wrap, made.columns[-1].overflow = False, "fold"
    for row in rows:
        made.add_row(*(escape(printable(str(cell))) for cell in row))
    return made


# ---------------------------------------------------------------- a plan


def plan_parts(
    plan: TransferPlan, src: str | None = None, dst: str | None = None
) -> tuple[Table | Text, ...]:
    """The output of `plan`. An end that is a file on this machine has its path in `src` or `dst`,
    since its region is that of the other end."""
    paths = () if plan.trees else plan.paths
    ways = [(" -> ".join(path.regions), rate(path.flow_gbps)) for path in paths]
    for tree in plan.trees:
        first, *others = (f"{tail} -> {head}" for tail, head in tree.edges)
        ways += [(first, rate(tree.flow_gbps)), *((edge, "") for edge in others)]
    what = "tree" if plan.trees else "path"
    instances = [(tag, group.count, group.type) for tag, group in plan.instances.items()]
    return (
        key_values(_plan_rows(plan, src, dst)),
        Text(),
        table((what, ">Gbit/s"), ways),
        Text(),
        table(("region", ">instances", "type"), instances),
        *(text_line(f"note: {note}") for note in plan.notes),
    )


def _plan_rows(plan: TransferPlan, src: str | None, dst: str | None) -> Iterator[tuple[str, str]]:
    to_each, of_what = (" to each", " of source data") if plan.trees else ("", "")
    yield "from", src or plan.src
    yield "to", dst or ", ".join(plan.ends[1:])
    yield "throughput", f"{plan.throughput_gbps:.2f} Gbit/s{to_each}"
    if plan.expected_gbps is not None and plan.promised_gbps is not None:
        promised = f"{plan.promised_gbps:.2f} Gbit/s, in {plan.confidence:.0%} of transfers"
        yield "expected", f"{plan.expected_gbps:.2f} Gbit/s"
        yield "promised", promised
    yield "price", f"{usd(plan.cost.usd_per_gb)} per GB{of_what} (egress and instances)"
    # What plans for each of several destinations would cost.
    if plan.separate_usd_per_gb is not None:
        saving = plan.separate_usd_per_gb - plan.cost.usd_per_gb
        saves = f"; the shared plan saves {usd(saving)}" if saving >= 0 else ""
        text = f"{usd(plan.separate_usd_per_gb)} per GB with one plan per destination{saves}"
        yield "separate", text
    if plan.volume_gb is not None:
        yield "volume", volume(plan.volume_gb)
        yield "time", f"{duration(plan.transfer_s)}, after {duration(plan.provision_s)} to start"
        yield "cost", cost_items(plan.cost)
    if plan.binding:
        yield "bound by", ", ".join(plan.binding)
    if plan.solver.status == "feasible":
        yield "proven", f"no plan is better by more than {plan.solver.gap:.2%}"
    yield "grid", f"{plan.grid.name} of {plan.grid.as_of}, throughput {plan.grid.throughput}"


def cost_items(cost: PlanCost) -> str:
    items = [
        ("egress", cost.egress_usd),
        ("instances", cost.instance_usd),
        ("boot", cost.boot_usd),
        ("minimum billing", cost.minimum_billing_usd or None),
        *cost.other_usd.items(),
    ]
    named = [f"{name} {usd(amount)}" for name, amount in items if amount is not None]
    requests = f"requests {usd(cost.request_usd)}"
    return f"{usd(cost.total_usd)} = {' + '.join([*named, requests])}"


def sentence_parts(sentences: Sequence[str]) -> tuple[Text, ...]:
    """Sentences below a plan, each on its own line."""
    return (Text(), *(text_line(sentence) for sentence in sentences)) if sentences else ()


# ---------------------------------------------------------------- objects


def preview_parts(rows: Iterable[Mapping[str, Any]], summary: Mapping[str, Any]) -> list[Any]:
    """The output of `cp --dry-run`."""
    first = [
        (row["action"], row["bytes"], row["source"], row["destination"], row["reason"])
        for row in islice(rows, SHOWN_ROWS)
    ]
    more = summary["objects"] + summary.get("delete", 0) - len(first)
    shown = table(("action", ">bytes", "source", "destination", "why"), first)
    parts: list[Any] = [shown]
    if more:
        parts.append(text_line(f"... and {more} more (--json lists all)"))
    deletes = ""
    if "delete" in summary:
        deletes = f", {summary['delete']} to delete ({size(summary['delete_bytes'])})"
        if summary["delete"] > summary["max_delete"]:
            deletes += f", which --max-delete refuses (most: {summary['max_delete']})"
    missing = f", {summary['missing']} missing" if summary["missing"] else ""
    itself = "; the store itself copies large ones" if summary["server_side_copy"] else ""
    moved = "; the sources of copied objects would be deleted" if summary["move"] else ""
    parts.append(
        text_line(
            f"{counted(summary['objects'], 'object')}: {summary['copy']} to copy"
            f" ({size(summary['copy_bytes'])}), {summary['skip']} to skip,"
            f" {summary['refuse']} refused{missing}{deletes}{itself}{moved}; nothing was written"
        )
    )
    return parts


def edge_table(result: TransferResult) -> Table:
    """What the grid said of each edge, what a probe found, and what the transfer got; Gbit/s."""
    rows = []
    for edge in result.edges:
        gbps = (edge.modelled_gbps, edge.probed_gbps, edge.planned_gbps, edge.achieved_gbps)
        known = ("" if one is None else rate(one) for one in gbps)
        rows.append((f"{edge.src} to {edge.dst}", *known))
    return table(("edge, Gbit/s", "modelled", "probed", "planned", "achieved"), rows)


def failure_table(result: TransferResult, limit: int = SHOWN_ROWS) -> Table:
    """The first failed objects of a result and their reasons."""
    rows = [(row.destination, row.code, row.reason) for row in result.failures[:limit]]
    made = table(("failed object", "code", "reason"), rows)
    made.columns[-1].no_wrap = False  # The end of a reason says what to do.
    return made
