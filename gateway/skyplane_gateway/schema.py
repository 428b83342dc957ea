"""JSON documents of dataclasses: encoding, and strict decoding.

A broken document raises one `ConfigurationInvalid` that names the first wrong place.
Nothing is converted: text in place of a number is a mistake of the document's author.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from skyplane_gateway.errors import ConfigurationInvalid

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

#: Values that JSON has. A tuple, since a union is slow for the many rows of a journal.
_PLAIN = (str, int, float, types.NoneType)

#: Types of fields whose values need no check beyond their type.
_EXACT = frozenset({str, int, bool})


def encode(value: DataclassInstance, version: int | None = None) -> dict[str, Any]:
    """The document of a dataclass: its fields in their order, after the schema version.

    A field with a `to_dict` of its own gives that. Tuples become lists: XCom would wrap them.
    """
    head = {} if version is None else {"schema_version": version}
    names = value.__dataclass_fields__
    return {**head, **{name: _plain(getattr(value, name)) for name in names}}


def _plain(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    return encode(value)


def decode(kind: type[T], data: object, what: str, *, version: int | None = None) -> T:
    """The dataclass `kind` from a document; fields with a default are optional.

    Args:
        what: name of the document in error messages, with its article.
        version: required `schema_version`; None for documents without one.

    Raises:
        ConfigurationInvalid: another version; a field is missing, unknown or of the wrong
            type; or the dataclass refuses a value.
    """
    document = dict(as_mapping(data, what))
    if version is not None:
        found = document.pop("schema_version", None)
        if found != version or isinstance(found, bool):
            raise ConfigurationInvalid(
                f"{what} of schema_version {found!r} cannot be read; this release reads {version}"
            )
    return _dataclass(kind, document, what)


def as_mapping(data: object, what: str) -> Mapping[str, Any]:
    """`data`, if it is a JSON object. Raises ConfigurationInvalid otherwise."""
    if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
        raise ConfigurationInvalid(f"{what} must be a JSON object, not {_shown(data)}")
    return data


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Translate the errors of lookups and conversions to ConfigurationInvalid."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigurationInvalid(f"{what} is broken: {why}") from error


@cache
def _fields(kind: type[Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Name -> type of all fields, and the names of those without a default."""
    hints, found = get_type_hints(kind), [entry for entry in fields(kind) if entry.init]
    without = [
        entry.name
        for entry in found
        if entry.default is MISSING and entry.default_factory is MISSING
    ]
    return {entry.name: hints[entry.name] for entry in found}, tuple(without)


def _dataclass(kind: type[T], document: Mapping[str, Any], place: str) -> T:
    hints, required = _fields(kind)
    unknown = sorted(document.keys() - hints.keys())
    if unknown:
        raise ConfigurationInvalid(f"{place} has no {', '.join(unknown)}; was it written by hand?")
    missing = [name for name in required if name not in document]
    if missing:
        raise ConfigurationInvalid(f"{place} is not complete: it lacks {', '.join(missing)}")
    return kind(
        **{
            name: value
            if type(value) is hints[name] and type(value) in _EXACT
            else _value(hints[name], value, f"{place}: {name}")
            for name, value in document.items()
        }
    )


def _value(hint: Any, value: Any, place: str) -> Any:
    if hint is Any:
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (option for option in arguments if option is not type(None))
        return _value(hint, value, place)
    if origin is Literal:
        if value not in arguments:
            choices = ", ".join(map(str, arguments))
            raise ConfigurationInvalid(f"{place} must be one of {choices}, not {_shown(value)}")
        return value
    if origin is tuple:
        return _tuple(arguments, value, place)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        entries = as_mapping(value, place)
        return {name: _value(arguments[1], entries[name], f"{place}.{name}") for name in entries}
    if is_dataclass(hint):
        return _nested(hint, value, place)
    return _scalar(hint, value, place)


def _nested(kind: Any, value: Any, place: str) -> Any:
    document = as_mapping(value, place)
    if not hasattr(kind, "from_dict"):
        return _dataclass(kind, document, place)
    with reading(place):
        return kind.from_dict(document)


def _tuple(arguments: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    # Text is a sequence too: `include: "*.csv"` would be five globs of one character.
    if not isinstance(value, list | tuple):
        raise ConfigurationInvalid(f"{place} must be a list, not {_shown(value)}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        if arguments[0] is str and all(type(entry) is str for entry in value):
            return tuple(value)  # Fast path: a journal has a hundred thousand keys.
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise ConfigurationInvalid(f"{place} must have {len(arguments)} entries, not {len(value)}")
    return tuple(
        _value(hint, entry, f"{place}[{index}]")
        for index, (hint, entry) in enumerate(zip(arguments, value, strict=True))
    )


def _scalar(hint: Any, value: Any, place: str) -> Any:
    if hint in (int, float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # NaN would pass every check of a limit.
        if isinstance(value, float) and not math.isfinite(value):
            is_number = False
        if not is_number or (hint is int and value != int(value)):
            wanted = "a whole number" if hint is int else "a number"
            raise ConfigurationInvalid(f"{place} must be {wanted}, not {_shown(value)}")
        with reading(place):
            return hint(value)
    if not isinstance(value, hint):
        wanted = {str: "text", bool: "true or false"}.get(hint, hint.__name__)
        raise ConfigurationInvalid(f"{place} must be {wanted}, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
