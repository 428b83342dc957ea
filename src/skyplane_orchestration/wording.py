"""Sizes and durations as a person reads them."""

from __future__ import annotations

from skyplane_orchestration.units import (
    BYTES_PER_GIB,
    BYTES_PER_KIB,
    BYTES_PER_MIB,
    SECONDS_PER_MINUTE,
)


def size(count_bytes: float) -> str:
    """Bytes in the largest binary unit that leaves at least one."""
    for unit, factor in (("GiB", BYTES_PER_GIB), ("MiB", BYTES_PER_MIB), ("KiB", BYTES_PER_KIB)):
        if count_bytes >= factor:
            return f"{count_bytes / factor:.1f} {unit}"
    return f"{count_bytes:.0f} B"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours; `?` for None."""
    if seconds is None:
        return "?"
    if seconds < SECONDS_PER_MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), SECONDS_PER_MINUTE)
    hours, minutes = divmod(minutes, SECONDS_PER_MINUTE)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
