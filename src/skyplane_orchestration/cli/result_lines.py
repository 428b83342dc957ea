"""The result of a transfer as lines of text or JSON.

Apart from `render`, since rich takes longer to load than the rest of a small job's output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.cli.console import print_error
from skyplane_orchestration.transfer.task_log import result_lines

if TYPE_CHECKING:
    from rich.table import Table

    from skyplane_orchestration.cli.console import Console
    from skyplane_orchestration.errors import DestinationsFailed
    from skyplane_orchestration.model.result import TransferResult


def print_result(console: Console, result: TransferResult) -> None:
    """Print the result of a transfer, as JSON or as text."""
    if console.is_json:
        console.write_json(result.to_dict())
    else:
        console.print(*result_parts(result))


def print_results(
    console: Console, results: Mapping[str, TransferResult], error: DestinationsFailed | None = None
) -> None:
    """Print the result for each of several destinations, and why some failed."""
    if console.is_json:
        document: dict[str, Any] = {
            "destinations": {url: result.to_dict() for url, result in results.items()}
        }
        if error is not None:
            errors = {url: one.to_dict() for url, one in error.errors.items()}
            document |= {"error": error.to_dict(), "errors": errors}
        console.write_json(document)
        return
    for url, result in results.items():
        console.print(f"{url}:", *result_parts(result))
    if error is not None:
        print_error(error.message)


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
