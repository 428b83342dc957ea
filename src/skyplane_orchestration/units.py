"""Conversions between units; no other module has factors of its own.

In all public values a rate is Gbit/s (1e9 bit/s) and a price is USD per GB
(1e9 bytes). Inside the planner volume is Gbit and price is USD per Gbit, so that
cost = flow x seconds x price holds without a factor. Clouds print "GB" and bill 2**30
bytes: such prices pass through `usd_per_gib_to_usd_per_gb` when a grid is loaded.
"""

from __future__ import annotations

BITS_PER_BYTE = 8
BYTES_PER_GB = 10**9
BITS_PER_GBIT = 10**9
BYTES_PER_KIB = 2**10
BYTES_PER_MIB = 2**20
BYTES_PER_GIB = 2**30
SECONDS_PER_MINUTE = 60
SECONDS_PER_HOUR = 3600


def gb_to_gbit(gb: float) -> float:
    """Gigabytes (1e9 B) to gigabits (1e9 bit)."""
    return gb * BITS_PER_BYTE


def gb_to_gib(gb: float) -> float:
    """Gigabytes (1e9 B) to gibibytes (2**30 B)."""
    return gb * BYTES_PER_GB / BYTES_PER_GIB


def gbit_to_gb(gbit: float) -> float:
    """Gigabits (1e9 bit) to gigabytes (1e9 B)."""
    return gbit / BITS_PER_BYTE


def bytes_to_gb(count: float) -> float:
    """Bytes to gigabytes (1e9 B)."""
    return count / BYTES_PER_GB


def gb_to_bytes(gb: float) -> int:
    """Gigabytes (1e9 B) to whole bytes, rounded to the nearest."""
    return round(gb * BYTES_PER_GB)


def mib_to_bytes(mib: float) -> int:
    """Mebibytes (2**20 B) to whole bytes, rounded to the nearest."""
    return round(mib * BYTES_PER_MIB)


def gbps_of(count_bytes: float, seconds: float) -> float:
    """Rate in Gbit/s of `count_bytes` moved in `seconds` (> 0)."""
    return count_bytes * BITS_PER_BYTE / BITS_PER_GBIT / seconds


def usd_per_gb_to_usd_per_gbit(usd_per_gb: float) -> float:
    """USD per GB (1e9 B) to USD per Gbit (1e9 bit)."""
    return usd_per_gb / BITS_PER_BYTE


def usd_per_gbit_to_usd_per_gb(usd_per_gbit: float) -> float:
    """USD per Gbit (1e9 bit) to USD per GB (1e9 B)."""
    return usd_per_gbit * BITS_PER_BYTE


def usd_per_gib_to_usd_per_gb(usd_per_gib: float) -> float:
    """USD per GiB (2**30 B), as clouds bill, to USD per GB (1e9 B)."""
    return usd_per_gib * BYTES_PER_GB / BYTES_PER_GIB


def usd_per_hour_to_usd_per_s(usd_per_hour: float) -> float:
    """USD per instance-hour to USD per instance-second."""
    return usd_per_hour / SECONDS_PER_HOUR
