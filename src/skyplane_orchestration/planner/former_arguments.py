"""Arguments of the last release that have no effect any more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def warn_of_proof_s(proof_s: object) -> None:
    """Warn of the argument `proof_s` where it is given."""
    if proof_s is not None:
        text = "proof_s has no effect: a plan states its gap; the next release refuses it"
        warnings.warn(text, FutureWarning, stacklevel=3)


def ignores_proof_s(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, which takes `proof_s` with a warning: every plan states its gap instead."""

    @wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        warn_of_proof_s(kwargs.pop("proof_s", None))
        return function(*args, **kwargs)

    return call
