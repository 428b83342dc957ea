"""Values that reach the library as texts: of rendered templates, and of forms."""

from __future__ import annotations

import ast
import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location, holds_template

#: Not Airflow's `to_boolean`, which reads every other text as False.
_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

#: How Python writes objects that are no literals, and in a text lists and objects of texts.
_OBJECT: Final = re.compile(
    r"^(frozenset|deque|dict_\w+|range|array)\(|^<.* at 0x[0-9a-f]+>|[\[{]['\"]"
)


def from_text(hint: Any, value: Any, *, is_whole: bool = False) -> Any:
    """A value with its texts read as a type wants them.

    What cannot be read stays as it is, for `schema.checked` to refuse. Where None is allowed, the
    empty text is None, but for lists and objects. A text in place of a list is its one entry.

    Args:
        hint: the type.
        is_whole: the whole value was one template, so that the text of a list or an object is
            read, as JSON or Python writes it.
    """
    options = options_of(hint)
    wanted = [option for option in options if option is not type(None)]
    # A dataclass, or its document.
    wanted = [option for option in wanted if is_dataclass(option)] or wanted
    if len(wanted) != 1:
        return value
    (hint,), may_be_none = wanted, type(None) in options
    origin = get_origin(hint) or hint
    if is_dataclass(hint) or origin is Mapping:
        return _object(hint, _read(value) if is_whole else value)
    if origin in (tuple, Sequence):
        found = _read(value) if is_whole else value
        if found is None or isinstance(found, list | tuple | set):
            return found
        is_one = isinstance(value, str) and value and not (is_whole and is_no_text(value))
        return (value,) if is_one else value
    if hint is bool and is_whole and type(value) is int:
        value = str(value)  # What a native template makes of the text.
    return _plain(hint, value, may_be_none) if isinstance(value, str) else value


def options_of(hint: Any) -> tuple[Any, ...]:
    """The types of a union; one type alone for itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _plain(hint: Any, text: str, may_be_none: bool) -> Any:
    if not text and may_be_none and hint in (str, int, float, Path):
        return None
    if hint is bool:
        return _BOOLEANS.get(text.lower(), text)
    if hint is Path:
        return Path(text)
    for read in {int: (int, _whole), float: (float,)}.get(hint, ()):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _whole(text: str) -> int:
    """The whole number of `2.0`. Raises ValueError."""
    number = float(text)
    if not number.is_integer():
        raise ValueError(text)
    return int(number)


def _object(hint: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return {name: _field(hints.get(name, Any), one) for name, one in value.items()}
    return {name: from_text(get_args(hint)[1], one) for name, one in value.items()}


def _field(hint: Any, value: Any) -> Any:
    """A document has lists, so a text in place of one is what a template made of a list."""
    is_list = any(get_origin(option) is tuple for option in options_of(hint))
    return _read(value) if is_list else from_text(hint, value)


def is_no_text(text: str) -> bool:
    """Whether a template made the text of None, a boolean, a list or another object."""
    found = _read(text)
    is_object = isinstance(found, bool | list | tuple | set | Mapping)
    return found is None or is_object or _OBJECT.search(text) is not None


def _read(value: Any) -> Any:
    """The list or object that a text is; else the value itself."""
    if not isinstance(value, str):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            return read(value)
        except (MemoryError, RecursionError, SyntaxError, ValueError):
            continue
    return value


def refuse_unrendered(name: str, value: Any) -> None:
    """Raise ConfigurationInvalid if a text of an argument still holds a template."""
    if isinstance(value, TransferJob | Location):
        value = value.to_dict()
    if isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_unrendered(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple | set):
        for index, inner in enumerate(value):
            refuse_unrendered(f"{name}[{index}]", inner)
    elif isinstance(value, str) and holds_template(value):
        raise ConfigurationInvalid(
            f"{name} is {value!r}, and its template was not rendered; Airflow renders the"
            " arguments of a task, but not the return value of another task: render it there"
        )
