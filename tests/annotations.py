"""What an annotation allows, written apart from the code that it judges."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin


def allows(hint: Any, value: Any, *, lists: Any = (list, tuple)) -> bool:
    """Whether an annotation allows a value; a whole number is a number too.

    Args:
        lists: what may be given for a sequence.
    """
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(allows(option, value, lists=lists) for option in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin in (tuple, Sequence):
        return isinstance(value, lists) and all(
            allows(arguments[0], one, lists=lists) for one in value
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            isinstance(name, str) and allows(arguments[1], one, lists=lists)
            for name, one in value.items()
        )
    if origin is Callable:
        return callable(value)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    if hint in (str, int, bool):
        return type(value) is hint
    return isinstance(value, origin)
