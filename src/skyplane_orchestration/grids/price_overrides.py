"""Prices that a user has agreed with a cloud; they take precedence over tables and rules.

A file is CSV (`edge,usd_per_gb` or `edge,usd_per_gib`, optionally `reason` and `as_of`) or YAML (a
list of mappings with those keys, or the same under `overrides`). `edge` is `SRC>DST`, two globs of
region tags. The first entry that matches an edge wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.rows import Findings, is_day, parsed_text, read_text, rows_of
from skyplane_orchestration.model.location import LOCAL_CLOUD, did_you_mean
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

#: Files of a grid directory that may hold overrides, in reading order.
OVERRIDE_FILES = ("overrides.csv", "overrides.yaml")

_PRICE_KEYS = {"usd_per_gb": "GB", "usd_per_gib": "GiB"}
_KEYS = frozenset({"edge", "reason", "as_of", *_PRICE_KEYS})


@dataclass(frozen=True, slots=True)
class PriceOverride:
    """One agreed price of an edge `SRC>DST`, in USD per GB (1e9 bytes).

    `billed_usd` and `unit` are the price as written; `origin` names the file and row.
    """

    edge: str
    usd_per_gb: float
    billed_usd: float
    unit: str
    reason: str = ""
    as_of: str = ""
    origin: str = ""

    @property
    def ends(self) -> tuple[str, str]:
        src, _, dst = self.edge.partition(">")
        return src.strip(), dst.strip()

    def matches(self, src_tag: str, dst_tag: str) -> bool:
        src, dst = self.ends
        return fnmatchcase(src_tag, src) and fnmatchcase(dst_tag, dst)


def first_match(
    overrides: Iterable[PriceOverride], src_tag: str, dst_tag: str
) -> PriceOverride | None:
    return next((one for one in overrides if one.matches(src_tag, dst_tag)), None)


def read_overrides(file: str | Path | Traversable) -> tuple[PriceOverride, ...]:
    """The overrides of a .csv, .yaml or .yml file, in its order.

    Raises GridInvalid for a missing file or a bad entry.
    """
    where = Path(file) if isinstance(file, str) else file
    if not where.is_file():
        raise GridInvalid(f"there is no file of price overrides {str(file)!r}")
    text = read_text(where, where.name)
    if where.name.endswith(".csv"):
        return tuple(
            override_of(f"{where.name} row {row.number}", row.cells)
            for row in rows_of(text, where.name, ("edge",), Findings())
        )
    if where.name.endswith((".yaml", ".yml")):
        loaded = parsed_text(text, where.name, yaml.safe_load)
        entries = loaded.get("overrides") if isinstance(loaded, dict) else loaded
        return overrides_of(entries, where.name)
    raise GridInvalid(f"price overrides are a .csv, .yaml or .yml file, not {where.name!r}")


def overrides_of(entries: object, name: str) -> tuple[PriceOverride, ...]:
    """The overrides in a YAML document's list. Raises GridInvalid."""
    if entries is None:
        return ()
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise GridInvalid(f"{name}: overrides are a list of entries with `edge` and `usd_per_gb`")
    return tuple(
        override_of(f"{name} entry {number}", entry) for number, entry in enumerate(entries, 1)
    )


def override_of(origin: str, entry: Mapping[str, object]) -> PriceOverride:
    """One entry. Raises GridInvalid, naming `origin`."""
    given = {key: value for key, value in entry.items() if value not in (None, "")}
    unknown = sorted(str(key) for key in set(given) - _KEYS)
    if unknown:
        raise GridInvalid(
            f"{origin}: {unknown[0]!r} is unknown; it takes {', '.join(sorted(_KEYS))}"
        )
    edge = str(given.get("edge", ""))
    if edge.count(">") != 1 or not all(part.strip() for part in edge.split(">")):
        raise GridInvalid(f"{origin}: edge is {edge!r}; write SRC>DST, like aws:eu-*>gcp:*")
    priced = [key for key in _PRICE_KEYS if key in given]
    if len(priced) != 1:
        raise GridInvalid(f"{origin}: give either usd_per_gb or usd_per_gib")
    usd = _price(origin, priced[0], given[priced[0]])
    as_of = str(given.get("as_of", ""))
    if as_of and not is_day(as_of):
        raise GridInvalid(f"{origin}: as_of is {as_of!r}, not a date like 2026-11-20")
    unit = _PRICE_KEYS[priced[0]]
    return PriceOverride(
        edge=edge,
        usd_per_gb=usd_per_gib_to_usd_per_gb(usd) if unit == "GiB" else usd,
        billed_usd=usd,
        unit=unit,
        reason=str(given.get("reason", "")),
        as_of=as_of,
        origin=origin,
    )


def _price(origin: str, key: str, value: object) -> float:
    try:
        usd = float(str(value))
    except ValueError:
        usd = math.nan
    if isinstance(value, bool) or not (math.isfinite(usd) and usd >= 0):
        raise GridInvalid(f"{origin}: {key} is {value!r}, not a number from 0 up")
    return usd


def require_edges(overrides: Iterable[PriceOverride], tags: Sequence[str]) -> None:
    """Raises GridInvalid for an override that matches no edge, which is likely a typing error.

    A `local:` place counts as a region, though no grid lists it.
    """
    for one in overrides:
        src_glob, dst_glob = one.ends
        srcs, dsts = (_matching(glob, tags) for glob in one.ends)
        if any(src != dst for src in srcs for dst in dsts):
            continue
        if not srcs or not dsts:
            glob = dst_glob if srcs else src_glob
            raise GridInvalid(
                f"{one.origin}: edge {one.edge!r} matches no edge: no region of the grid is"
                f" {glob!r}{did_you_mean(glob, tags)}"
            )
        raise GridInvalid(f"{one.origin}: edge {one.edge!r} matches no edge, only one region")


def _matching(glob: str, tags: Sequence[str]) -> list[str]:
    found = [tag for tag in tags if fnmatchcase(tag, glob)]
    return found or ([glob] if glob.startswith(f"{LOCAL_CLOUD}:") else [])
