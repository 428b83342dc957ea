"""Sizes, rates, amounts and durations as text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from skyplane_orchestration.units import (
    BITS_PER_GBIT,
    BYTES_PER_GIB,
    BYTES_PER_KIB,
    BYTES_PER_MIB,
    SECONDS_PER_MINUTE,
    gb_to_bytes,
)


def size(count_bytes: float) -> str:
    """Bytes in the largest binary unit with a value of 1 or more."""
    for unit, factor in (("GiB", BYTES_PER_GIB), ("MiB", BYTES_PER_MIB), ("KiB", BYTES_PER_KIB)):
        if count_bytes >= factor:
            return f"{count_bytes / factor:.1f} {unit}"
    return f"{count_bytes:.0f} B"


def volume(gb: float) -> str:
    """GB (1e9 B) in the largest decimal unit with a value of 1 or more, with 4 digits."""
    count = gb_to_bytes(gb)
    for unit, zeros in (("PB", 15), ("TB", 12), ("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**zeros:
            return f"{count / 10**zeros:.4g} {unit}"
    return f"{count} B"


def counted(count: int, noun: str) -> str:
    """`1 object`, `2 objects`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def usd(amount: float | None) -> str:
    """US dollars, with 4 decimal places below 1; `?` for None."""
    if amount is None:
        return "?"
    if 0 < amount < 0.00005:
        return "<$0.0001"
    return f"${amount:.4f}" if amount < 1 else f"${amount:.2f}"


def throughput(gbps: float) -> str:
    """Gbit/s, or a smaller unit for low rates."""
    bits_per_s = gbps * BITS_PER_GBIT
    for unit, zeros in (("Gbit/s", 9), ("Mbit/s", 6), ("kbit/s", 3)):
        if bits_per_s >= 10 ** (zeros - 1):
            return f"{bits_per_s / 10**zeros:.2f} {unit}"
    return f"{bits_per_s:.0f} bit/s"


def rate(gbps: float) -> str:
    """Gbit/s with 2 decimal places, or with 2 digits for low rates."""
    return f"{gbps:.2f}" if gbps >= 0.1 else f"{gbps:.2g}"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours; `?` for None, `<0.1 s` for very short times."""
    if seconds is None:
        return "?"
    if 0 < seconds < 0.05:
        return "<0.1 s"
    if seconds < SECONDS_PER_MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), SECONDS_PER_MINUTE)
    hours, minutes = divmod(minutes, SECONDS_PER_MINUTE)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def unknown_fields(unknown: Sequence[str], known: Collection[str]) -> str:
    """Fields that an object cannot have, and the one that was meant, or else all that it can."""
    near = next((found[0] for one in unknown if (found := get_close_matches(one, known, 1))), "")
    hint = f"did you mean {near}?" if near else f"known fields: {', '.join(sorted(known))}"
    return f"unknown fields: {', '.join(unknown)}; {hint}"
