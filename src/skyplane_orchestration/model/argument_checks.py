"""Checks the arguments of public functions, as `schema.check` does the fields of values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from inspect import Parameter, Signature, isfunction, signature
from types import SimpleNamespace
from typing import Any, ParamSpec, TypeVar, get_type_hints

from skyplane_gateway.common.schema import checked
from skyplane_orchestration.model.text_values import options_of

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type[Any])


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments that are not of the annotated types, with ConfigurationInvalid.

    Not checked: `**` arguments, whose receiver checks them; protocols; and types that only type
    checkers know.
    """

    @wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        given = _signature(function).bind(*args, **kwargs)
        for name, hint in checked_types(function).items():
            if name in given.arguments:
                given.arguments[name] = checked(hint, given.arguments[name], name)
        return function(*given.args, **given.kwargs)

    return checking


def checks_methods(kind: C) -> C:
    """`checks_arguments` for `__init__` and all public methods of a class."""
    for name, member in list(vars(kind).items()):
        if isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, checks_arguments(member))
    return kind


@cache
def _signature(function: Callable[..., Any]) -> Signature:
    """To make one takes longer than to bind arguments to it."""
    return signature(function)


@cache
def checked_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Argument -> type, for those that are checked."""
    found: dict[str, Any] = {}
    for name, parameter in _signature(function).parameters.items():
        if parameter.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
            continue
        one = SimpleNamespace(__annotations__={name: parameter.annotation})
        try:
            hint = get_type_hints(one, function.__globals__).get(name, Any)
        except NameError:
            continue
        if parameter.annotation is Parameter.empty or any(map(_is_protocol, options_of(hint))):
            continue
        found[name] = hint
    return found


def _is_protocol(hint: Any) -> bool:
    return bool(getattr(hint, "_is_protocol", False))
