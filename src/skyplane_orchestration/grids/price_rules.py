"""Egress prices by rule, as billed first, then converted to USD per GB.

`applied_rule` names the entry of price_rules.yaml for an edge, so that prices can be compared with
a published table and explained edge by edge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

Rules = Mapping[str, Any]

#: Network tiers of instances; the prices of a cloud are those of its premium tier.
PREMIUM, STANDARD = "premium", "standard"
#: The entry of a cloud that has a standard tier.
_STANDARD_TIER: Final = "standard_tier"


class Billed(NamedTuple):
    """USD per billed unit, and the entry behind it; `is_verified` is False for an assumption."""

    usd: float
    rule: str
    is_verified: bool = True
    is_internet: bool = False


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """The rule behind one price.

    Attributes:
        usd_per_gb: after conversion.
        billed_usd, unit: as the cloud bills it, per GiB (2**30 bytes) or GB.
        rule: the entry of price_rules.yaml, in words.
        as_of, source: of the price list behind it.
        is_verified: False if it rests on an assumption.
    """

    usd_per_gb: float
    billed_usd: float
    unit: str
    rule: str
    as_of: str
    source: str
    is_verified: bool


PricedBy = Callable[[Rules, GridRegion, GridRegion], Billed]


def _by_source_class(rules: Rules, src: GridRegion, dst: GridRegion) -> Billed:
    price = float(rules["classes"][src.price_class]["inter"])
    return Billed(price, f"class {src.price_class} to any other region", src.price_verified)


def _max_of_class_rates(rules: Rules, src: GridRegion, dst: GridRegion) -> Billed:
    pair = f"{src.price_class}>{dst.price_class}"
    special = rules["class_pairs"].get(pair)
    is_verified = src.price_verified and dst.price_verified
    if special is not None:
        return Billed(float(special), f"class pair {pair}", is_verified)
    rates = rules["class_rates"]
    higher = max(src.price_class, dst.price_class, key=lambda name: float(rates[name]))
    return Billed(float(rates[higher]), f"class {higher}, the higher of {pair}", is_verified)


def _intra_inter_by_source(rules: Rules, src: GridRegion, dst: GridRegion) -> Billed:
    kind = "intra" if src.price_class == dst.price_class else "inter"
    where = "inside its continent" if kind == "intra" else "to another continent"
    price = float(rules["classes"][src.price_class][kind])
    is_verified = src.price_verified and dst.price_verified
    return Billed(price, f"class {src.price_class} {where}", is_verified)


def _internet_by_class(rules: Rules, src: GridRegion, dst: GridRegion) -> Billed:
    price = float(rules["classes"][src.price_class]["internet"][0])
    rule = f"class {src.price_class} to the internet, first tier"
    return Billed(price, rule, src.price_verified, is_internet=True)


def _internet_by_both_ends(rules: Rules, src: GridRegion, dst: GridRegion) -> Billed:
    """The larger of the prices for the destination's country and for the source's country."""
    by_destination = rules["internet_by_destination"]
    country = dst.country if dst.country in by_destination else "default"
    to = "any other country" if country == "default" else country
    there = float(by_destination[country][0])
    tiers = (rules.get("internet_by_source") or {}).get(src.country)
    is_verified = src.country not in (rules.get("internet_unverified_sources") or ())
    if tiers is None or float(tiers[0]) < there:
        rule = f"internet to {to}, first tier"
        return Billed(there, rule, is_verified, is_internet=True)
    rule = f"internet out of {src.country}, first tier"
    return Billed(float(tiers[0]), rule, is_verified, is_internet=True)


class PricingRule(NamedTuple):
    """One pricing rule, and the key that determines its price: edges of equal key cost the same."""

    price: PricedBy
    key: Callable[[GridRegion, GridRegion], tuple[str, ...]]


_INTER_REGION: Mapping[str, PricingRule] = {
    "by_source_class": PricingRule(_by_source_class, lambda src, _: (src.price_class,)),
    "max_of_class_rates": PricingRule(
        _max_of_class_rates, lambda src, dst: (src.price_class, dst.price_class)
    ),
    "intra_inter_by_source": PricingRule(
        _intra_inter_by_source, lambda src, dst: (src.price_class, dst.price_class)
    ),
}
_INTERNET: Mapping[str, PricingRule] = {
    "by_source_class": PricingRule(_internet_by_class, lambda src, _: (src.price_class,)),
    "by_both_ends": PricingRule(
        _internet_by_both_ends, lambda src, dst: (src.country, dst.country)
    ),
}


def billed_by(rules: Rules, src: GridRegion, dst: GridRegion) -> Billed:
    """What one cloud bills for bytes from `src` to `dst` (perhaps in no cloud), and by which entry.

    Order: same region (0), pairs, the cloud's inter-region rule, internet (first tier).
    """
    if src.tag == dst.tag:
        return Billed(0.0, "same region")
    if src.cloud == dst.cloud:
        pair = f"{src.name}>{dst.name}"
        if pair in rules["pairs"]:
            return Billed(float(rules["pairs"][pair]), f"pair {pair}")
        return _INTER_REGION[rules["inter_region"]].price(rules, src, dst)
    return _INTERNET[rules["internet"]].price(rules, src, dst)


def has_network_tiers(document: Rules, cloud: str) -> bool:
    """Whether the rules of a cloud have prices of a standard tier."""
    return _STANDARD_TIER in (document["clouds"].get(cloud) or {})


def offers_standard_tier(document: Rules, region: GridRegion) -> bool:
    """Whether a region has a standard tier, and a price for it."""
    if not has_network_tiers(document, region.cloud):
        return False
    tier = document["clouds"][region.cloud][_STANDARD_TIER]
    return region.name in tier["regions"] and region.price_class in tier["internet"]


def standard_tier_rule(document: Rules, src: GridRegion) -> AppliedRule:
    """The rule of the first tier from a region that `offers_standard_tier` to the internet."""
    rules = document["clouds"][src.cloud]
    tier = rules[_STANDARD_TIER]
    billed = float(tier["internet"][src.price_class][0])
    is_assumed = src.price_class in (tier.get("unverified_classes") or ())
    return AppliedRule(
        usd_per_gb=usd_per_gib_to_usd_per_gb(billed) if rules["unit"] == "GiB" else billed,
        billed_usd=billed,
        unit=rules["unit"],
        rule=f"class {src.price_class} to the internet by the standard tier, first tier",
        as_of=str(tier["as_of"]),
        source=str(tier["source"]),
        is_verified=src.price_verified and not is_assumed,
    )


def applied_rule(document: Rules, src: GridRegion, dst: GridRegion) -> AppliedRule:
    """The rule of one edge; traffic out of a `local:` place is free.

    Raises GridInvalid when the document has no rule for the source's cloud or class.
    """
    rules = document["clouds"].get(src.cloud)
    if rules is None:
        if src.cloud == "local":
            return AppliedRule(0.0, 0.0, "GB", "out of a place without a cloud", "", "", True)
        raise GridInvalid(f"price_rules.yaml has no rules for {src.cloud!r} ({src.tag})")
    try:
        billed = billed_by(rules, src, dst)
    except KeyError as error:
        raise GridInvalid(
            f"price_rules.yaml has no entry {error} needed for {src.tag} -> {dst.tag};"
            " give the regions a price_class, or the grid a price.csv"
        ) from error
    unit = rules["unit"]
    if unit not in ("GiB", "GB"):
        raise GridInvalid(f"price_rules.yaml: unit of {src.cloud} is {unit!r}, use GiB or GB")
    prefix = "internet_" if billed.is_internet and "internet_as_of" in rules else ""
    return AppliedRule(
        usd_per_gb=usd_per_gib_to_usd_per_gb(billed.usd) if unit == "GiB" else billed.usd,
        billed_usd=billed.usd,
        unit=unit,
        rule=billed.rule,
        as_of=str(rules.get(f"{prefix}as_of", "")),
        source=str(rules.get(f"{prefix}source", "")),
        is_verified=billed.is_verified,
    )


def price_key(document: Rules, src: GridRegion, dst: GridRegion) -> tuple[str, ...]:
    """The key that determines the price of an edge."""
    rules = document["clouds"].get(src.cloud)
    if rules is None:
        return (src.cloud,)
    if src.cloud != dst.cloud:
        return (src.cloud, "internet", *_INTERNET[rules["internet"]].key(src, dst))
    if f"{src.name}>{dst.name}" in rules["pairs"]:
        return src.tag, dst.tag
    return (src.cloud, *_INTER_REGION[rules["inter_region"]].key(src, dst))
