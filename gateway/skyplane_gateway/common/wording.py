"""Messages that know which of their words are arguments, so that each interface names its own.

The library's names are those of Python. The command has options in their place: it shows
`--no-verify` for `argument("verify", "none")`. User text in a message is never searched for names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Self


class Mark(NamedTuple):
    """The place of an argument in a text.

    Args:
        offset, length: of the words that stand for it, in characters.
        name: of the argument, as in Python.
        value: that the message speaks of; None for the argument as such.
    """

    offset: int
    length: int
    name: str
    value: Any = None


class Text(str):
    """A text with the places of its arguments. Join it with `+`: an f-string drops the places."""

    marks: tuple[Mark, ...]

    def __new__(cls, text: str, marks: tuple[Mark, ...] = ()) -> Self:
        made = super().__new__(cls, text)
        made.marks = marks
        return made

    def __add__(self, other: str) -> Text:
        return Text(str.__add__(self, other), (*self.marks, *_moved(other, len(self))))

    def __radd__(self, other: str) -> Text:
        return Text(str.__add__(other, self), (*marks_of(other), *_moved(self, len(other))))

    def __reduce__(self) -> tuple[Any, ...]:
        return Text, (str(self), self.marks)


def argument(name: str, value: Any = None, *, shown: str = "") -> Text:
    """The name of an argument, for a message.

    Args:
        value: of which the message speaks, such as `verify="none"`.
        shown: what Python's users read in place of the name.
    """
    text = shown or (name if value is None else f"{name}={value!r}")
    return Text(text, (Mark(0, len(text), name, value),))


def joined(separator: str, texts: Sequence[str]) -> Text:
    """As `separator.join`, with all places."""
    found = Text("")
    for index, text in enumerate(texts):
        found = found + (separator if index else "") + text
    return found


def marks_of(text: str) -> tuple[Mark, ...]:
    return text.marks if isinstance(text, Text) else ()


def in_words_of(text: str, name_of: Callable[[Mark, str], str]) -> str:
    """The text with other names.

    Args:
        name_of: the words for a place; it gets those of Python, too.
    """
    parts, end = [], 0
    for mark in marks_of(text):
        parts.append(text[end : mark.offset])
        end = mark.offset + mark.length
        parts.append(name_of(mark, text[mark.offset : end]))
    return "".join((*parts, text[end:]))


def marked(text: str, places: object) -> str:
    """The text with places that a document names; a broken list gives a text without."""
    if not isinstance(places, Sequence) or not places:
        return text
    found = [Mark(*one) for one in places if _is_mark(one, len(text))]
    return Text(text, tuple(found)) if len(found) == len(places) else text


#: Types of the first fields of a `Mark`.
_PLACE: Final = (int, int, str)


def _is_mark(found: object, end: int) -> bool:
    if not isinstance(found, Sequence) or len(found) != len(Mark._fields):
        return False
    if [type(one) for one in found[:3]] != list(_PLACE):
        return False
    offset, length = int(found[0]), int(found[1])
    return 0 <= offset <= offset + length <= end


def _moved(text: str, by: int) -> Iterable[Mark]:
    return (one._replace(offset=one.offset + by) for one in marks_of(text))
