"""Messages that know which of their words are fields, so that each face prints its own names.

A message names fields as Python does. The command has options in their place: it shows
`--no-verify` for `verify='none'`. A user's text is a value of a template: no word in it is
taken for a field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from string import Formatter
from typing import Final, NamedTuple, Self


class FieldName(NamedTuple):
    """The name of a field in a message.

    Args:
        name: as in Python.
        value: of which the message speaks, as Python writes it; empty for the field as such.
        shown: what Python's users read in place of the name.
    """

    name: str
    value: str = ""
    shown: str = ""

    def __str__(self) -> str:
        return self.shown or (f"{self.name}={self.value}" if self.value else self.name)


class Text(str):
    """A text of parts; some are names of fields. An f-string drops them, `+` keeps them."""

    parts: tuple[str | FieldName, ...]

    def __new__(cls, *parts: str | FieldName) -> Self:
        made = super().__new__(cls, "".join(map(str, parts)))
        made.parts = tuple(one for part in parts for one in _parts_of(part))
        return made

    def __getnewargs__(self) -> tuple[str | FieldName, ...]:  # type: ignore[override]
        return self.parts

    def __add__(self, other: str) -> Text:
        return Text(self, other)

    def __radd__(self, other: str) -> Text:
        return Text(other, self)


_FORMATTER: Final = Formatter()


def with_fields(template: str, /, **values: object) -> Text:
    """The text of a template, whose places are those of `str.format`.

    A place without a value is the field of its name: `{verify}`, and `{verify:'none'}` for that
    value of it. A value may be a `FieldName` or a `Text`.
    """
    parts: list[str | FieldName] = []
    for before, name, spec, conversion in _FORMATTER.parse(template):
        parts.append(before)
        if name is not None:
            value = values[name] if name in values else FieldName(name, spec or "")
            if not isinstance(value, Text | FieldName):
                value = format(_FORMATTER.convert_field(value, conversion), spec or "")
            parts.append(value)
    return Text(*parts)


def fields_of(text: str) -> tuple[FieldName, ...]:
    return tuple(one for one in _parts_of(text) if isinstance(one, FieldName))


def in_words_of(text: str, name_of: Callable[[FieldName], str | FieldName]) -> Text:
    """The text with the names that `name_of` gives to its fields."""
    parts = _parts_of(text)
    return Text(*(name_of(one) if isinstance(one, FieldName) else one for one in parts))


def parts_to_list(text: str) -> list[object]:
    """The parts for a document; empty for a text without fields."""
    parts = _parts_of(text) if fields_of(text) else ()
    return [list(one) if isinstance(one, FieldName) else one for one in parts]


def with_parts(text: str, parts: object) -> str:
    """The text with the parts that a document names; without them if they do not make it up."""
    if not isinstance(parts, Iterable):
        return text
    try:
        found = Text(*(one if isinstance(one, str) else FieldName(*map(str, one)) for one in parts))
    except TypeError:
        return text
    return found if found == text else text


def _parts_of(text: str | FieldName) -> tuple[str | FieldName, ...]:
    return text.parts if isinstance(text, Text) else (text,)
