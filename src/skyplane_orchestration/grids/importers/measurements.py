"""Measurements by ordered pair of regions, as importers gather them."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from skyplane_orchestration.errors import GridInvalid, InvalidLocation
from skyplane_orchestration.model.location import parse_region_tag

Pair = tuple[str, str]

#: A GCP zone: its region, a hyphen and one letter.
_ZONE = re.compile(r"(gcp:[a-z]+-[a-z]+\d+)-[a-z]\Z")


def region_of(text: str) -> str:
    """The tag of a region, also for a zone of it (`gcp:us-east4-a`). Raises InvalidLocation."""
    tag = parse_region_tag(text).tag
    zone = _ZONE.match(tag)
    return zone.group(1) if zone else tag


@dataclass(slots=True)
class Samples:
    """Values by pair; several of one pair become their median."""

    by_pair: dict[Pair, list[float]] = field(default_factory=dict)
    as_of: dict[Pair, str] = field(default_factory=dict)

    def add(self, pair: Pair, value: float, as_of: str = "") -> None:
        self.by_pair.setdefault(pair, []).append(value)
        self.as_of[pair] = max(self.as_of.get(pair, ""), as_of)

    def rows(self) -> Iterator[tuple[Pair, float, int, str]]:
        """Pair, median, number of samples and latest date, sorted by pair."""
        for pair in sorted(self.by_pair):
            values = self.by_pair[pair]
            yield pair, statistics.median(values), len(values), self.as_of[pair]

    @property
    def repeated(self) -> int:
        """Pairs that were measured more than once."""
        return sum(len(values) > 1 for values in self.by_pair.values())

    def __len__(self) -> int:
        return len(self.by_pair)


@dataclass(frozen=True, slots=True)
class Measurements:
    """All measurements of one source.

    Attributes:
        rates: Gbit/s (1e9 bit/s) that arrived at the destination.
        kind: the kind of source, in words.
        sha256: of the source's bytes; for a folder, over names and digests of its files.
        skipped: number of skipped rows or files, by reason.
        rtts, prices: ms and USD per GB, if such files were given.
    """

    rates: Samples
    kind: str
    sha256: str
    skipped: Mapping[str, int] = field(default_factory=Counter)
    rtts: Samples = field(default_factory=Samples)
    prices: Samples = field(default_factory=Samples)
    notes: tuple[str, ...] = ()

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(sorted({tag for pair in self.rates.by_pair for tag in pair}))


def named_region(place: str, text: str) -> str:
    """`region_of`, with `place` in the error. Raises GridInvalid."""
    try:
        return region_of(text)
    except InvalidLocation as error:
        raise GridInvalid(f"{place}: {error}") from error
