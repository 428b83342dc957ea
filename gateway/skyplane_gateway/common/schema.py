"""JSON documents of dataclasses, and what a value of an annotation is.

A broken document raises one `ConfigurationInvalid` that names the first wrong place.
Nothing is converted: text in place of a number is a mistake of the document's author. `check`
asks the same of values that are made in Python.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.wording import FieldName, Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

#: Values that JSON has. A tuple, since a union is slow for the many rows of a journal.
_PLAIN = (str, int, float, types.NoneType)

#: Limits of documents that users hand over: the largest plans stay far below.
MAX_DOCUMENT_BYTES: Final = 16 << 20
MAX_DEPTH: Final = 64
MAX_CONTAINERS: Final = 1_000_000

#: Types of fields whose values need no check beyond their type.
_EXACT = frozenset({str, int, bool, types.NoneType})


class Document:
    """A dataclass with a document of its own: `class Route(Document, what="a route")`.

    Args:
        what: name of the document in error messages, with its article.
        version: its `schema_version`; None for documents without one.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _what: ClassVar[str]
    _version: ClassVar[int | None]

    def __init_subclass__(cls, what: str = "", version: int | None = None) -> None:
        if what:  # A dataclass with slots is made once more, without arguments.
            cls._what, cls._version = what, version

    def to_dict(self) -> dict[str, Any]:
        return encode(self, self._version)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises ConfigurationInvalid for a broken document, or one of another version."""
        return decode(cls, data, cls._what, version=cls._version)


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


def parsed(
    text: str | bytes,
    what: str,
    load: Callable[[Any], Any] = json.loads,
    *,
    most_bytes: int = MAX_DOCUMENT_BYTES,
) -> Any:
    """The document in a text that a user or another program wrote.

    Args:
        load: parses it; its own errors but ValueError pass.

    Raises ConfigurationInvalid: it is no JSON, too large, or nested too deep.
    """
    if len(text) > most_bytes:
        raise ConfigurationInvalid(f"{what} is larger than {most_bytes >> 20} MiB")
    too_deep = f"{what} is nested deeper than {MAX_DEPTH} levels"
    try:
        document = load(text)
    except RecursionError as error:
        raise ConfigurationInvalid(too_deep) from error
    except ValueError as error:
        raise ConfigurationInvalid(f"{what} is not JSON: {error}") from error
    level, depth, count = [document], 0, 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth, count = depth + 1, count + len(level)
        # References of YAML may repeat a part without end.
        if depth > MAX_DEPTH or count > MAX_CONTAINERS:
            raise ConfigurationInvalid(too_deep if depth > MAX_DEPTH else f"{what} is too large")
        level = [
            entry for one in level for entry in (one.values() if isinstance(one, dict) else one)
        ]
    return document


def as_mapping(data: object, what: str) -> Mapping[str, Any]:
    """`data`, if it is a JSON object. Raises ConfigurationInvalid otherwise."""
    if type(data) is not dict and not isinstance(data, Mapping):
        raise ConfigurationInvalid(what + f" must be a JSON object, not {_shown(data)}")
    for name in data:
        if not isinstance(name, str):
            raise ConfigurationInvalid(what + f" must have texts as names, not {_shown(name)}")
    return data


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Translate the errors of lookups and conversions to ConfigurationInvalid."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigurationInvalid(what + f" is broken: {why}") from error


def check(made: DataclassInstance) -> None:
    """Check the types of a frozen dataclass, first thing in its `__post_init__`.

    A whole number serves for a float, a list or a set for a tuple; they are converted.

    Raises ConfigurationInvalid, with the name of the first field of a wrong type.
    """
    for name, (hint, is_secret, where, _) in _fields(type(made))[0].items():
        given = getattr(made, name)
        found = _field(hint, is_secret, given, where, is_made=True)
        if found is not given:
            object.__setattr__(made, name, found)


def checked(hint: Any, value: Any, name: str, *, is_secret: bool = False) -> Any:
    """A value that was made in Python, as an annotation wants it; as `check` for one field."""
    return _field(hint, is_secret, value, Text(FieldName(name)), is_made=True)


@cache
def _fields(
    kind: type[Any],
) -> tuple[dict[str, tuple[Any, bool, Text, frozenset[Any]]], tuple[str, ...]]:
    """Of all fields, name -> type, whether it is secret, name for messages, and the types of values
    that need no check.

    And the names without a default.
    """
    hints, found = get_type_hints(kind), [entry for entry in fields(kind) if entry.init]
    without = [
        entry.name
        for entry in found
        if entry.default is MISSING and entry.default_factory is MISSING
    ]
    known = {}
    for one in found:
        hint = hints[one.name]
        exact = _EXACT.intersection(get_args(hint) if _shape(hint)[0] is Union else (hint,))
        known[one.name] = (hint, not one.repr, Text(FieldName(one.name)), exact)
    return known, tuple(without)


@cache
def _shape(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Origin and arguments of a type, and whether its values in documents are documents."""
    origin = Union if isinstance(hint, types.UnionType) else get_origin(hint)
    return origin, get_args(hint), is_dataclass(hint) or hasattr(hint, "from_dict")


def _dataclass(kind: type[T], document: Mapping[str, Any], where: str) -> T:
    known, required = _fields(kind)
    if not document.keys() <= known.keys():
        unknown = sorted(document.keys() - known.keys())
        raise ConfigurationInvalid(where + f" has no {', '.join(unknown)}; was it written by hand?")
    missing = [name for name in required if name not in document]
    if missing:
        raise ConfigurationInvalid(where + f" is not complete: it lacks {', '.join(missing)}")
    found = {
        name: value
        if type(value) in known[name][3]
        else _field(*known[name][:2], value, f"{where}: {name}", is_made=False)
        for name, value in document.items()
    }
    try:
        return kind(**found)
    except ConfigurationInvalid as error:
        error.message = str(error.message)  # A document's names are the same in all faces.
        error.put_before(where)
        raise


def _field(hint: Any, is_secret: bool, value: Any, where: str, *, is_made: bool) -> Any:
    try:
        return _value(hint, value, where, is_made=is_made)
    except ConfigurationInvalid as error:
        if not is_secret:
            raise
        what = error.message[len(where) :].partition(", not ")[0]
        raise ConfigurationInvalid(where + what + ", not this") from None


def _value(hint: Any, value: Any, where: str, *, is_made: bool) -> Any:
    """
    Args:
        is_made: the value is not from a document, so nested dataclasses are made already.
    """
    if hint is Any:
        return value
    origin, arguments, is_document = _shape(hint)
    if origin is Union:
        return _one_of(arguments, value, where, is_made)
    if origin is Literal:
        if value not in arguments:
            choices = ", ".join(str(one) for one in arguments if one != "")
            raise ConfigurationInvalid(where + f" must be one of {choices}, not {_shown(value)}")
        return value
    if origin is tuple:
        return _tuple(arguments, value, where, is_made)
    if origin is Sequence:
        return _tuple((*arguments, ...), value, where, is_made)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        entries = as_mapping(value, where)
        return {
            name: _value(arguments[1], entries[name], where + f".{name}", is_made=is_made)
            for name in entries
        }
    if is_document and not is_made:
        return _nested(hint, value, where)
    return _scalar(origin or hint, value, where, is_made)


def _one_of(options: tuple[Any, ...], value: Any, where: str, is_made: bool) -> Any:
    """A value of one of several types; those with more than one besides None are classes."""
    if value is None and type(None) in options:
        return None
    wanted = [option for option in options if option is not type(None)]
    if len(wanted) == 1:
        return _value(wanted[0], value, where, is_made=is_made)
    classes = tuple(get_origin(option) or option for option in wanted)
    if not isinstance(value, classes):
        names = ", ".join(one.__name__ for one in classes)
        raise ConfigurationInvalid(where + f" must be one of {names}, not {_shown(value)}")
    return value


def _nested(kind: Any, value: Any, where: str) -> Any:
    document = as_mapping(value, where)
    is_plain = (
        issubclass(kind, Document) and kind._version is None and "from_dict" not in vars(kind)
    )
    if is_plain or not hasattr(kind, "from_dict"):
        return _dataclass(kind, document, where)
    with reading(where):
        return kind.from_dict(document)


def _tuple(arguments: tuple[Any, ...], value: Any, where: str, is_made: bool) -> tuple[Any, ...]:
    # Text is a sequence too: `include: "*.csv"` would be five globs of one character.
    if not isinstance(value, list | tuple | set | frozenset):
        raise ConfigurationInvalid(where + f" must be a list, not {_shown(value)}")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        if arguments[0] is str and all(type(entry) is str for entry in value):
            return tuple(value)  # Fast path: a journal has a hundred thousand keys.
        arguments = (arguments[0],) * len(value)
    if len(value) != len(arguments):
        raise ConfigurationInvalid(where + f" must have {len(arguments)} entries, not {len(value)}")
    return tuple(
        _value(hint, entry, where + f"[{index}]", is_made=is_made)
        for index, (hint, entry) in enumerate(zip(arguments, value, strict=True))
    )


def _scalar(hint: Any, value: Any, where: str, is_made: bool) -> Any:
    if hint in (int, float):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # NaN would pass every check of a limit.
        if isinstance(value, float) and not math.isfinite(value):
            is_number = False
        if is_number and hint is int:
            # A document may come from a language without whole numbers.
            is_number = isinstance(value, int) if is_made else value == int(value)
        if not is_number:
            wanted = "a whole number" if hint is int else "a number"
            raise ConfigurationInvalid(where + f" must be {wanted}, not {_shown(value)}")
        with reading(where):
            return hint(value)
    if not isinstance(value, hint):
        wanted = {str: "text", bool: "true or false", Path: "a path"}.get(
            hint, f"a {hint.__name__}"
        )
        raise ConfigurationInvalid(where + f" must be {wanted}, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = " ".join(repr(value).splitlines())
    return text if len(text) <= 80 else f"{text[:80]}..."
