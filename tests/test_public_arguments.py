"""Every argument of every public method refuses what its annotation does not allow."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.annotations import allows

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.argument_checks import checked_types
from skyplane_orchestration.model.text_values import options_of

GIVEN: Final[tuple[Any, ...]] = (
    *("false", "1", "", 1, 1.5, math.nan, True, None, [], ["a"], [1], {}, {"a": 1}),
    *(b"bytes", object()),
)

METHODS: Final[dict[str, Callable[..., Any]]] = {
    name: member
    for name, member in vars(Client).items()
    if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_"))
}


def valid(hint: Any) -> Any:
    """Some value of a type."""
    first = options_of(hint)[0]
    if is_dataclass(first) and isinstance(first, type):
        return object.__new__(first)
    return {str: "a", int: 1, float: 1.0, bool: True}.get(first, ())


PAIRS: Final = [
    (method, argument)
    for method, function in METHODS.items()
    for argument in inspect.signature(function).parameters
    # A provisioner is any object with its methods; see `RunOptions` in test_public_values.
    if argument not in ("self", "provisioner", "arguments")
]


@pytest.mark.parametrize(("method", "argument"), PAIRS)
def test_an_argument_of_a_wrong_type_is_refused_before_anything_else(
    method: str, argument: str
) -> None:
    function = METHODS[method]
    types = checked_types(inspect.unwrap(function))
    required = {
        name: valid(types[name])
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty and name not in ("self", "arguments")
    }
    wrong: list[str] = []
    # Nothing has been set, so that any work would raise AttributeError.
    client = object.__new__(Client)
    for value in GIVEN:
        if argument == "secret":
            if value is None:
                continue
        elif allows(types[argument], value):
            continue
        try:
            function(client, **{**required, argument: value})
        except ConfigurationInvalid as error:
            if argument not in str(error) or "\n" in str(error):
                wrong.append(f"{value!r}: {error}")
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            wrong.append(f"{value!r}: {type(error).__name__}: {error}")
        else:
            wrong.append(f"{value!r} is taken")
    assert not wrong, "\n".join(wrong)


def test_flags_of_methods_that_delete_are_among_them() -> None:
    assert {("sweep", "dry_run"), ("sweep", "orphaned_uploads"), ("run", "plan")} <= set(PAIRS)


def test_a_path_and_a_mapping_are_no_texts() -> None:
    assert not allows(str, Path("a"))
    assert not allows(Sequence[str], {"a": "b"})
    assert allows(Mapping[str, Any], {"a": "b"})
