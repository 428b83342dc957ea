"""The parser of commands, and options made from the fields of a job."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, signature
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from skyplane_orchestration.cli.other_tools import advice_for_option
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.text_values import options_of

#: The result of `parser.add_subparsers()`; argparse has no public type for it.
Subparsers = Any


class Parser(argparse.ArgumentParser):
    """A parser that raises ConfigurationInvalid instead of printing its usage."""

    def __init__(self, **options: Any) -> None:
        # A new option could make today's abbreviation ambiguous.
        super().__init__(**{"allow_abbrev": False, **options})
        self._is_inner = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse unknown arguments here, so that the error names the subcommand's help."""
        is_outer = any(one.nargs == "?" and not one.option_strings for one in self._actions)
        if self._is_inner or not is_outer:
            found, unknown = super().parse_known_args(args, namespace)
        else:
            # Else an argument that may be missing counts as missing at the first option. This
            # method is called again, for the options and for the rest.
            self._is_inner = True
            found, unknown = self.parse_known_intermixed_args(args, namespace)
            self._is_inner = False
        if unknown and not self._is_inner:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._hint(unknown)}")
        return found, unknown

    def _hint(self, unknown: Sequence[str]) -> str:
        """What to do about arguments that are not known; empty without an idea."""
        advice = (advice_for_option(one) for one in unknown)
        if found := next(filter(None, advice), ""):
            return f"; {found}"
        option = next((one for one in unknown if one.startswith("-")), "")
        if not option:
            ends = " and ".join(str(one.metavar) for one in self._actions if not one.option_strings)
            return f"; it takes {ends or 'options'} only (quote a name that has * or blanks)"
        near = difflib.get_close_matches(
            option.partition("=")[0].lower(), self._option_string_actions, n=1, cutoff=0.8
        )
        return f"; did you mean {near[0]}?" if near else ""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationInvalid(f"{message} (see {self.prog} --help)")


def add_flags(group: argparse._ActionsContainer, **flags: str) -> None:
    """Options without a value: name -> help."""
    for name, what in flags.items():
        group.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=what)


def add_fields(group: argparse._ActionsContainer, kind: Callable[..., Any], **what: str) -> None:
    """Options for fields of a job, of their names and types; the job itself checks the values.

    Args:
        kind: what has the fields: a dataclass, or a function of such arguments.
        what: field -> its help, after the word that stands for a value that is free.
    """
    hints, parameters = _fields_of(kind)
    for name, text in what.items():
        option = f"--{name.replace('_', '-')}"
        hint = next(one for one in options_of(hints[name]) if one is not type(None))
        if hint is bool:
            add_flags(group, **{name: text})
        elif get_origin(hint) is Literal:
            choices, default = get_args(hint), parameters[name].default
            text = f"{text} (default: %(default)s)"
            group.add_argument(option, choices=choices, default=default, help=text)
        else:
            metavar, _, text = text.partition(" ")
            group.add_argument(option, type=hint, metavar=metavar, help=text)


@cache
def _fields_of(kind: Callable[..., Any]) -> tuple[dict[str, Any], Mapping[str, Parameter]]:
    """Types and parameters; a command takes the fields of a job in many groups."""
    return get_type_hints(kind), signature(kind).parameters


def add_list(
    group: argparse._ActionsContainer, option: str, metavar: str, what: str, **more: Any
) -> None:
    """An option that may be given several times."""
    group.add_argument(option, action="append", default=[], metavar=metavar, help=what, **more)
