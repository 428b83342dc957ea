"""Reads sizes, durations and times as users write them: `10M`, `24h`, `2026-01-31T00:00:00Z`."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

from skyplane_gateway.common.errors import ConfigurationInvalid

#: rclone's units: powers of 1024, in bytes.
_SIZE_UNITS: Final[dict[str, int]] = {unit: 1024**power for power, unit in enumerate("BKMGTP")}
_DURATION_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_SIZE: Final = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>B|[KMGTP](?:iB?)?)", re.IGNORECASE
)
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[smhdw])+")
_DURATION_PART: Final = re.compile(r"([0-9.]+)([smhdw])")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def size_bytes(name: str, text: str) -> int:
    """`512B`, `10K`, `10KiB`, `1.5G` -> bytes, rounded to whole ones; K is 1024 B.

    Args:
        name: of the value, for the error.

    Raises:
        ConfigurationInvalid: it is not a number with a unit.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ConfigurationInvalid(
            name + f" must be a number with one of the units {', '.join(_SIZE_UNITS)}, "
            f"such as 10M, not {text!r}"
        )
    unit_bytes: int = _SIZE_UNITS[found["unit"][0].upper()]
    return round(float(found["number"]) * unit_bytes)


def duration_s(text: str) -> float | None:
    """`90s`, `24h`, `7d`, `1d12h` -> seconds; None for any other text."""
    if _DURATION.fullmatch(text) is None:
        return None
    return sum(
        float(number) * _DURATION_UNITS_S[unit] for number, unit in _DURATION_PART.findall(text)
    )


def unix_s(name: str, text: str, now_unix_s: float) -> float:
    """The time that a text means, in unix seconds.

    A duration counts back from now. A time (RFC 3339) has a zone; a date is its midnight in UTC.

    Raises ConfigurationInvalid for any other text; `name` is that of the value.
    """
    seconds = duration_s(text)
    if seconds is not None:
        return now_unix_s - seconds
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is not None and _DATE.fullmatch(text):
        found = found.replace(tzinfo=UTC)
    if found is None or found.tzinfo is None:
        raise ConfigurationInvalid(
            name + " must be a duration such as 24h or 7d (s, m, h, d, w), a date, or a time "
            f"with its zone such as 2026-01-31T06:00:00Z, not {text!r}"
        )
    return found.timestamp()


def size_text(amount_bytes: int) -> str:
    """The shortest text that `size_bytes` reads as this number of bytes."""
    if not amount_bytes:
        return "0B"
    power = min((int(math.log2(amount_bytes & -amount_bytes)) // 10), len(_SIZE_UNITS) - 1)
    return f"{amount_bytes >> 10 * power}{'BKMGTP'[power]}"
