"""Checks the arguments of functions that make definitions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar, get_type_hints

from skyplane_gateway.schema import checked

P = ParamSpec("P")
R = TypeVar("R")


def checks_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse arguments that are not of the annotated types, with ConfigurationInvalid.

    `TransferJob` checks the fields of a job that a function passes on.
    """

    @wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        hints = get_type_hints(function)
        for name, value in signature(function).bind(*args, **kwargs).arguments.items():
            if name not in ("job", "options"):
                checked(hints[name], value, name)
        return function(*args, **kwargs)

    return checking
