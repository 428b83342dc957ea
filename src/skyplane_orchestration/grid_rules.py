"""What completes a grid: egress prices from rules, rates and round trips from a model.

Pure functions on plain data; `grids.py` reads the files and calls them. Prices are
resolved exactly as billed (`billed_price`), and converted to USD per GB only after that,
so that the rules can be compared with a published table digit by digit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

Floats = NDArray[np.float64]

EARTH_RADIUS_KM = 6371.0
FROM_RULES = "rules"
FROM_OVERRIDE = "override"


@dataclass(frozen=True, slots=True)
class GridRegion:
    """One region of a grid. Latitude and longitude are degrees of the city."""

    tag: str
    city: str = ""
    country: str = ""
    latitude: float = float("nan")
    longitude: float = float("nan")
    price_class: str = ""
    price_verified: bool = True
    state: str = ""

    @property
    def cloud(self) -> str:
        return self.tag.partition(":")[0]

    @property
    def name(self) -> str:
        return self.tag.partition(":")[2]


class EdgePrice(NamedTuple):
    """USD per GB (1e9 bytes), and whether a rule or an override said so."""

    usd_per_gb: float
    source: str


# ---------------------------------------------------------------- prices

Rules = Mapping[str, Any]
BilledPrice = Callable[[Rules, GridRegion, GridRegion], float]


def _by_source_class(rules: Rules, src: GridRegion, dst: GridRegion) -> float:
    return float(rules["classes"][src.price_class]["inter"])


def _max_of_class_rates(rules: Rules, src: GridRegion, dst: GridRegion) -> float:
    special = rules["class_pairs"].get(f"{src.price_class}>{dst.price_class}")
    if special is not None:
        return float(special)
    rates = rules["class_rates"]
    return float(max(rates[src.price_class], rates[dst.price_class]))


def _intra_inter_by_source(rules: Rules, src: GridRegion, dst: GridRegion) -> float:
    kind = "intra" if src.price_class == dst.price_class else "inter"
    return float(rules["classes"][src.price_class][kind])


def _internet_by_class(rules: Rules, src: GridRegion, dst: GridRegion) -> float:
    return float(rules["classes"][src.price_class]["internet"][0])


def _internet_by_country(rules: Rules, src: GridRegion, dst: GridRegion) -> float:
    tiers = rules["internet_by_country"]
    return float(tiers.get(dst.country, tiers["default"])[0])


_INTER_REGION: Mapping[str, BilledPrice] = {
    "by_source_class": _by_source_class,
    "max_of_class_rates": _max_of_class_rates,
    "intra_inter_by_source": _intra_inter_by_source,
}
_INTERNET: Mapping[str, BilledPrice] = {
    "by_source_class": _internet_by_class,
    "by_destination_country": _internet_by_country,
}


def billed_price(rules: Rules, src: GridRegion, dst: GridRegion) -> float:
    """USD per billed unit of one cloud's rules for bytes that leave `src` for `dst`.

    Order: same region (0), pairs, the cloud's inter-region rule, internet (first tier).
    `dst` may lie in another cloud or outside of every cloud.
    """
    if src.tag == dst.tag:
        return 0.0
    if src.cloud == dst.cloud:
        pair = rules["pairs"].get(f"{src.name}>{dst.name}")
        if pair is not None:
            return float(pair)
        return _INTER_REGION[rules["inter_region"]](rules, src, dst)
    return _INTERNET[rules["internet"]](rules, src, dst)


def edge_price(document: Rules, src: GridRegion, dst: GridRegion) -> EdgePrice:
    """Price of one edge by the whole rule document, in USD per GB.

    Traffic out of a place without a cloud is free (it is not this document's to price).
    Raises GridInvalid when the document has no rule for the source's cloud or class.
    """
    for override in document.get("overrides") or ():
        src_glob, _, dst_glob = str(override["edge"]).partition(">")
        if fnmatchcase(src.tag, src_glob) and fnmatchcase(dst.tag, dst_glob):
            return EdgePrice(float(override["usd_per_gb"]), FROM_OVERRIDE)
    rules = document["clouds"].get(src.cloud)
    if rules is None:
        if src.cloud == "local":
            return EdgePrice(0.0, FROM_RULES)
        raise GridInvalid(f"price_rules.yaml has no rules for {src.cloud!r} ({src.tag})")
    try:
        billed = billed_price(rules, src, dst)
    except KeyError as error:
        raise GridInvalid(
            f"price_rules.yaml has no entry {error} needed for {src.tag} -> {dst.tag};"
            " give the regions a price_class, or the grid a price.csv"
        ) from error
    unit = rules["unit"]
    if unit == "GiB":
        return EdgePrice(usd_per_gib_to_usd_per_gb(billed), FROM_RULES)
    if unit == "GB":
        return EdgePrice(billed, FROM_RULES)
    raise GridInvalid(f"price_rules.yaml: unit of {src.cloud} is {unit!r}, use GiB or GB")


# ---------------------------------------------------------------- rates


def pairwise_distance_km(regions: Sequence[GridRegion]) -> Floats:
    """Great-circle distance between all regions, shape (V, V), haversine formula."""
    latitude = np.radians([region.latitude for region in regions])
    longitude = np.radians([region.longitude for region in regions])
    half_chord = (
        np.sin((latitude[:, None] - latitude[None, :]) / 2) ** 2
        + np.cos(latitude[:, None])
        * np.cos(latitude[None, :])
        * np.sin((longitude[:, None] - longitude[None, :]) / 2) ** 2
    )
    distance: Floats = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(half_chord, 0.0, 1.0)))
    return distance


def modelled_rtt_ms(model: Mapping[str, Any], distance_km: Floats) -> Floats:
    """Round trip from distance: a line."""
    line = model["rtt"]
    rtt: Floats = line["base_ms"] + line["ms_per_km"] * distance_km
    return rtt


def modelled_throughput_gbps(
    model: Mapping[str, Any], clouds: Sequence[str], rtt_ms: Floats
) -> Floats:
    """Rate of one instance pair over 64 connections, shape (V, V).

    One saturating curve per ordered pair of clouds; 0 (no edge) where the model has no
    curve, where the round trip is unknown, and on the diagonal.
    """
    rate = np.zeros_like(rtt_ms)
    names = np.array(clouds)
    for pair, curve in model["curves"].items():
        src, _, dst = pair.partition(">")
        chosen = (names[:, None] == src) & (names[None, :] == dst)
        relative = rtt_ms[chosen] / curve["half_rtt_ms"]
        rate[chosen] = curve["cap_gbps"] / (1.0 + relative ** curve["steepness"])
    np.fill_diagonal(rate, 0.0)
    return np.nan_to_num(rate, nan=0.0)
