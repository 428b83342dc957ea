"""Filters of objects by a list of keys, by time and by size."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from os.path import commonprefix
from typing import Final

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.quantities import duration_s, size_bytes, unix_s
from skyplane_gateway.common.schema import check
from skyplane_gateway.common.wording import FieldName, Text

#: Longest list of keys, in bytes of UTF-8: a control call carries it.
MAX_LIST_BYTES: Final = 8 << 20


#: A comment without a blank before its text, and blanks before or after a key.
_DOUBTFUL: Final = re.compile(r"\s*[#;]+[^\s#;]|\s+[^\s#;]|[^\s#;].*\s$")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of size and time; None for none.

    The time is the store's own. `newer_than_unix_s` and `max_bytes` themselves are within the
    bounds, `older_than_unix_s` is not: so two windows that meet share no object.
    """

    newer_than_unix_s: float | None = None
    older_than_unix_s: float | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None

    def admit(self, info: ObjectInfo) -> bool:
        """Whether an object is within all bounds."""
        time, size = info.last_modified, info.size_bytes
        return (
            (self.newer_than_unix_s is None or time >= self.newer_than_unix_s)
            and (self.older_than_unix_s is None or time < self.older_than_unix_s)
            and (self.min_bytes is None or size >= self.min_bytes)
            and (self.max_bytes is None or size <= self.max_bytes)
        )


#: No bounds.
UNBOUNDED: Final = Bounds()


@dataclass(frozen=True, slots=True)
class ObjectFilter:
    """The filters of a job beside its globs, as its user gave them; None for no filter.

    Attributes:
        files_from: keys below the source prefix, sorted and each once.
        newer_than, older_than: a duration before now (`24h`, `7d`), or a time (RFC 3339).
        min_size, max_size: a number with a unit B, K, M, G, T or P, in powers of 1024.

    Raises:
        ConfigurationInvalid: a value is none of this kind, or no object can pass.
    """

    files_from: tuple[str, ...] | None = None
    newer_than: str | None = None
    older_than: str | None = None
    min_size: str | None = None
    max_size: str | None = None

    def __post_init__(self) -> None:
        check(self)
        if self.files_from is not None:
            object.__setattr__(self, "files_from", _checked_keys(self.files_from))
        bounds = self.bounds(0.0)
        if _is_over(bounds.min_bytes, bounds.max_bytes):
            raise ConfigurationInvalid.about(
                "no object has {min_size} {least} or more, and {max_size} {most} or less",
                least=self.min_size,
                most=self.max_size,
            )
        # A duration and a time cannot be compared before the clock is read.
        newer, older = (duration_s(text or "") for text in (self.newer_than, self.older_than))
        is_comparable = (newer is None) == (older is None)
        if is_comparable and _is_over(bounds.newer_than_unix_s, bounds.older_than_unix_s):
            raise ConfigurationInvalid.about(
                "no object is {newer_than} {begin} and {older_than} {end}",
                begin=self.newer_than,
                end=self.older_than,
            )

    def bounds(self, now_unix_s: float) -> Bounds:
        """The bounds, with durations counted from `now_unix_s`."""

        def time(name: str, text: str | None) -> float | None:
            return None if text is None else unix_s(Text(FieldName(name)), text, now_unix_s)

        def size(name: str, text: str | None) -> int | None:
            return None if text is None else size_bytes(Text(FieldName(name)), text)

        return Bounds(
            time("newer_than", self.newer_than),
            time("older_than", self.older_than),
            size("min_size", self.min_size),
            size("max_size", self.max_size),
        )


def _is_over(least: float | None, most: float | None) -> bool:
    return least is not None and most is not None and least > most


def _checked_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The keys, sorted and each once. Raises ConfigurationInvalid."""
    if "" in keys:
        raise ConfigurationInvalid.about("{files_from} has an empty key; leave it out")
    if sum(len(key.encode(errors="replace")) for key in keys) > MAX_LIST_BYTES:
        raise ConfigurationInvalid.about(
            "{files_from} has more than {most} MiB of keys; split it, or copy the prefix with "
            "{include} and {exclude}",
            most=MAX_LIST_BYTES >> 20,
        )
    return tuple(sorted(set(keys)))


def has_key(keys: tuple[str, ...], key: str) -> bool:
    """Whether sorted keys have this one."""
    at = bisect_left(keys, key)
    return at < len(keys) and keys[at] == key


def has_key_below(keys: tuple[str, ...], start: str) -> bool:
    """Whether one of sorted keys starts so."""
    at = bisect_left(keys, start)
    return at < len(keys) and keys[at].startswith(start)


def common_start(keys: tuple[str, ...]) -> str:
    """What all sorted keys start with."""
    return commonprefix((keys[0], keys[-1])) if keys else ""  # noqa: RUF071 - texts, not paths


def keys_of_lines(text: str, *, is_raw: bool = False) -> tuple[str, ...]:
    """The keys of a file with one key per line, as rclone's `--files-from` reads it.

    Blanks around a key and slashes before it are dropped. Empty lines and lines that start with
    `#` or `;` are comments. With `is_raw` each line that is not empty is a key as it is.
    """
    lines = _lines(text)
    if is_raw:
        return tuple(filter(None, lines))
    found = (line.strip() for line in lines)
    return tuple(
        key for line in found if not line.startswith(("#", ";")) and (key := line.lstrip("/"))
    )


def doubtful_lines(text: str) -> list[int]:
    """Numbers of lines, from 1, that may be keys and are not or not whole in `keys_of_lines`."""
    return [number for number, line in enumerate(_lines(text), 1) if _DOUBTFUL.match(line)]


def _lines(text: str) -> list[str]:
    """Lines end in LF or CRLF. A byte order mark belongs to the file."""
    return [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]


ALL_OBJECTS: Final = ObjectFilter()
