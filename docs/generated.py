"""Parts of pages that the code itself states; mkdocs calls `on_page_markdown` for each page."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from skyplane_gateway.protocol.states import TRANSITIONS
from skyplane_orchestration import errors
from skyplane_orchestration.cli.main import build_parser
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.provider_info import CONNECTION_FIELDS

_MARKER: Final = re.compile(r"<!-- generated: ([a-z -]+) -->")
_WIDTH: Final = 100


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with each marker replaced by what it names."""
    return _MARKER.sub(lambda match: _PARTS[match[1]](), markdown)


def command_help() -> str:
    """The help text of every verb, below a heading of its own."""
    return "\n\n".join(
        f"## {name}\n\n```text\n{text}```" for name, text in _help_of(build_parser())
    )


def error_codes() -> str:
    """A table of all errors: code, class, whether a retry can help, and the first sentence."""
    found = [each for each in vars(errors).values() if isinstance(each, type)]
    classes = [each for each in found if issubclass(each, SkyplaneError)]
    return _table(
        ("code", "class", "permanent", "meaning"),
        sorted(
            (f"`{each.code}`", f"`{each.__name__}`", _yes(each.is_permanent), _first_line(each))
            for each in classes
        ),
    )


def connection_fields() -> str:
    """A table of the fields of an Airflow connection."""
    return _table(
        ("field", "meaning"),
        [(f"`{name}`", field["description"]) for name, field in CONNECTION_FIELDS.items()],
    )


def resource_fields() -> str:
    """A table of the fields of the Dagster resource."""
    # Here, because it loads Dagster.
    from skyplane_orchestration.dagster import SkyplaneResource

    rows = [
        (f"`{name}`", f"`{field.default!r}`", str(field.description))
        for name, field in SkyplaneResource.model_fields.items()
    ]
    return _table(("field", "default", "meaning"), rows)


def costs() -> str:
    """What typical jobs cost, route by route."""
    # Here, because it loads the solver.
    from docs.costs import typical_costs

    return typical_costs()


def bills() -> str:
    """Bills made by hand beside those of plans."""
    # Here, because it loads the solver.
    from docs.bills import bill_tables

    return bill_tables()


def wire_states() -> str:
    """A table of the states of a data connection."""
    return _table(
        ("state", "step", "state after"),
        [
            (state.value, step.value, after.value)
            for state, steps in TRANSITIONS.items()
            for step, after in sorted(steps.items(), key=lambda item: item[0].value)
        ],
    )


_PARTS: Final = {
    "command help": command_help,
    "error codes": error_codes,
    "connection fields": connection_fields,
    "resource fields": resource_fields,
    "typical costs": costs,
    "bills": bills,
    "wire states": wire_states,
}


def _help_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Name and help of every verb, and of the actions of a verb that has some."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                verb.formatter_class = _Formatter
                yield verb.prog.partition(" ")[2] or name, verb.format_help()
                yield from _help_of(verb)


class _Formatter(argparse.HelpFormatter):
    """As wide on every machine."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _first_line(documented: type) -> str:
    return (inspect.getdoc(documented) or "").partition("\n\n")[0].replace("\n", " ")


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
