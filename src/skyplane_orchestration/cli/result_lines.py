"""The result of a transfer as lines of text or JSON.

Apart from `render`, since rich takes longer to load than the rest of a small job's output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyplane_orchestration.formatting import counted, duration, size, throughput, usd
from skyplane_orchestration.model.fleet import where_gateways_run
from skyplane_orchestration.transfer.task_log import cost_text

if TYPE_CHECKING:
    from rich.table import Table

    from skyplane_orchestration.cli.console import Console
    from skyplane_orchestration.model.result import TransferResult


def print_result(console: Console, result: TransferResult) -> None:
    """Print the result of a transfer, as JSON or as text."""
    if console.is_json:
        console.write_json(result.to_dict())
    else:
        console.print(*result_parts(result))


def result_parts(result: TransferResult) -> list[str | Table]:
    """The output of a transfer that has ended."""
    if not result.used_gateways:
        unchanged = f"{counted(result.objects, 'object')} unchanged; no gateways were needed"
        return [
            f"nothing to copy: {unchanged} ({duration(result.seconds)})",
            *_delete_lines(result),
        ]
    earlier = f", {result.copied_earlier} copied earlier" if result.copied_earlier else ""
    unfinished = f", {result.unfinished} unfinished" if result.unfinished else ""
    parts: list[str | Table] = [
        (
            f"{result.state}: {result.copied} of {result.objects} objects copied"
            f" ({size(result.copied_bytes)}{earlier}),"
            f" {result.skipped} skipped, {result.failed} failed{unfinished}"
        ),
        (
            f"{duration(result.seconds)}, {throughput(result.goodput_gbps)}"
            f" (planned {throughput(result.planned_gbps)}),"
            f" {cost_text(result)}"
        ),
        where_gateways_run(result.gateways),
    ]
    if result.server_side:
        parts.append(
            f"copied by the store itself: {counted(result.server_side, 'object')}"
            f" ({size(result.server_side_bytes)})"
        )
    if result.unchecked:
        unchecked = counted(result.unchecked, "object")
        parts.append(f"{unchecked} without a checksum of the source to compare with")
    if result.encrypted:
        parts.append("objects were encrypted from source to sink (AES-256-GCM)")
    own = result.this_try
    if own.seconds < result.seconds:
        parts.append(
            f"this try: {counted(own.copied, 'object')} ({size(own.copied_bytes)}) in"
            f" {duration(own.seconds)}, cost {usd(own.cost.total_usd)}"
        )
    if any(edge.probed_gbps is not None for edge in result.edges):
        from skyplane_orchestration.cli.render import edge_table

        parts.append(edge_table(result))
    if result.failures:
        from skyplane_orchestration.cli.render import failure_table

        parts.append(failure_table(result))
    parts += _delete_lines(result)
    if result.manifest_uri:
        parts.append(f"manifest: {result.manifest_uri}")
    return parts


def _delete_lines(result: TransferResult) -> list[str]:
    """The deletes at the destination, and all warnings."""
    deleted = f"{counted(result.deleted, 'object')} deleted at the destination"
    return [*([deleted] if result.deleted else []), *(f"warning: {w}" for w in result.warnings)]
