"""Messages of the library with the options of the command in place of fields."""

from __future__ import annotations

import argparse
from typing import Final

from skyplane_gateway.common.wording import FieldName, in_words_of

#: Prefix of an end's arguments -> that of its options.
_ENDS: Final = {"source": "src", "destination": "dst"}

#: Argument of an end -> what follows `--src-` or `--dst-`; empty for the place itself.
_OF_END: Final = {
    "url": "",
    "region": "region",
    "endpoint": "endpoint",
    "credential_ref": "credentials",
    "options": "option",
}


def with_option_names(message: str, options: argparse.Namespace | None) -> str:
    """The message; `options` are those of the command, None if they could not be read."""
    parser = getattr(options, "parser", None)
    return in_words_of(message, lambda field: _option_of(parser, field) or str(field))


def _option_of(parser: argparse.ArgumentParser | None, field: FieldName) -> str:
    """The option for a field; empty for one that the subcommand does not have."""
    name = _of_end(field.name) or field.name
    actions = [one for one in parser._actions if one.dest == name] if parser else []
    exact = [one for one in actions if field.value and repr(one.const) == field.value]
    # The option that takes any value stands before those for one of them.
    for action in exact or actions[:1]:
        return action.option_strings[0] if action.option_strings else str(action.metavar)
    return ""


def _of_end(name: str) -> str:
    """Where the parser keeps an argument of an end; empty for any other argument."""
    end, _, field = name.partition("_")
    if end not in _ENDS or field not in _OF_END:
        return ""
    return f"{_ENDS[end]}_{_OF_END[field]}".rstrip("_")
