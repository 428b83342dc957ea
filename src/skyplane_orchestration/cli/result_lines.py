"""The result of a transfer as lines of text or JSON.

Apart from `render`, since rich takes longer to load than the rest of a small job's output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skyplane_orchestration.transfer.task_log import result_lines

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
    parts: list[str | Table] = [*result_lines(result)]
    if any(edge.probed_gbps is not None for edge in result.edges):
        from skyplane_orchestration.cli.render import edge_table

        parts.append(edge_table(result))
    if result.failures:
        from skyplane_orchestration.cli.render import failure_table

        parts.append(failure_table(result))
    parts += [f"warning: {warning}" for warning in result.warnings]
    if result.manifest_uri:
        parts.append(f"manifest: {result.manifest_uri}")
    return parts
