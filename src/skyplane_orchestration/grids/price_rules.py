"""Egress prices by rule, as billed first, then converted to USD per GB.

`applied_rule` names the entry of price_rules.yaml for an edge, so that prices can be compared with
a published table and explained edge by edge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.monthly_volume import (
    NOTHING_SENT,
    MonthlyVolume,
    TierShare,
    average_usd,
    tier_shares,
)
from skyplane_orchestration.units import gb_to_gib, usd_per_gib_to_usd_per_gb

Rules = Mapping[str, Any]

#: Network tiers of instances; the prices of a cloud are those of its premium tier.
PREMIUM, STANDARD = "premium", "standard"
#: The entry of a cloud that has a standard tier.
_STANDARD_TIER: Final = "standard_tier"


class Billed(NamedTuple):
    """USD per billed unit, and the entry behind it; `is_verified` is False for an assumption.

    `tiers` has the prices of all tiers where the volume of a month matters; `usd` is the first.
    """

    usd: float
    rule: str
    is_verified: bool = True
    tiers: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """The rule behind one price.

    Attributes:
        usd_per_gb: after conversion; the average over the tiers of the volume.
        billed_usd, unit: as the cloud bills it, per GiB (2**30 bytes) or GB.
        rule: the entry of price_rules.yaml, in words.
        shares: of the volume, by tier, in the unit; empty where tiers do not matter.
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
    shares: tuple[TierShare, ...] = ()


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
    prices = rules["classes"][src.price_class]["internet"]
    return _by_tier(prices, f"class {src.price_class} to the internet", src.price_verified)


def _internet_by_both_ends(rules: Rules, src: GridRegion, dst: GridRegion) -> Billed:
    """The larger of the prices for the destination's country and for the source's country."""
    by_destination = rules["internet_by_destination"]
    country = dst.country if dst.country in by_destination else "default"
    there = by_destination[country]
    here = (rules.get("internet_by_source") or {}).get(src.country)
    is_verified = src.country not in (rules.get("internet_unverified_sources") or ())
    if here is None or float(here[0]) < float(there[0]):
        to = "any other country" if country == "default" else country
        return _by_tier(there, f"internet to {to}", is_verified)
    return _by_tier(here, f"internet out of {src.country}", is_verified)


def _by_tier(prices: Sequence[float], rule: str, is_verified: bool) -> Billed:
    tiers = tuple(float(price) for price in prices)
    return Billed(tiers[0], rule, is_verified, tiers)


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

    Order: same region (0), pairs, the cloud's inter-region rule, internet.
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
    is_there = region.name in tier.get("regions", (region.name,))
    return is_there and region.price_class in tier["internet"]


def standard_tier_rule(
    document: Rules, src: GridRegion, month: MonthlyVolume = NOTHING_SENT
) -> AppliedRule:
    """The rule from a region that `offers_standard_tier` to the internet."""
    tier = document["clouds"][src.cloud][_STANDARD_TIER]
    is_assumed = src.price_class in (tier.get("unverified_classes") or ())
    billed = _by_tier(
        tier["internet"][src.price_class],
        f"class {src.price_class} to the internet by the standard tier",
        src.price_verified and not is_assumed,
    )
    unit = document["clouds"][src.cloud]["unit"]
    return _applied(billed, unit, tier.get("tier_upto_gib", ()), month, tier)


def applied_rule(
    document: Rules, src: GridRegion, dst: GridRegion, month: MonthlyVolume = NOTHING_SENT
) -> AppliedRule:
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
    dated = rules
    if billed.tiers and "internet_as_of" in rules:
        dated = {"as_of": rules["internet_as_of"], "source": rules.get("internet_source", "")}
    return _applied(billed, unit, rules.get("internet_tier_upto_gib", ()), month, dated)


def _applied(
    billed: Billed, unit: str, tier_upto_gib: Sequence[float], month: MonthlyVolume, dated: Rules
) -> AppliedRule:
    """A price in USD per GB, over the tiers that a month's volume reaches."""
    usd, rule = billed.usd, billed.rule
    shares: tuple[TierShare, ...] = ()
    if billed.tiers:
        start, amount = month.already_gb or 0.0, month.volume_gb
        if unit == "GiB":
            start, amount = gb_to_gib(start), gb_to_gib(amount)
        shares = tier_shares(billed.tiers, tier_upto_gib, start, amount)
        usd, rule = average_usd(shares), f"{rule}, {_in_words(shares)}"
    return AppliedRule(
        usd_per_gb=usd_per_gib_to_usd_per_gb(usd) if unit == "GiB" else usd,
        billed_usd=usd,
        unit=unit,
        rule=rule,
        as_of=str(dated.get("as_of", "")),
        source=str(dated.get("source", "")),
        is_verified=billed.is_verified,
        shares=shares,
    )


def _in_words(shares: Sequence[TierShare]) -> str:
    first, last = shares[0].number, shares[-1].number
    if first != last:
        return f"tiers {first} to {last}"
    return "first tier" if first == 1 else f"tier {first}"


def first_tier_gb(document: Rules) -> float:
    """Up to this volume of a month, in GB, every price of the document is that of a first tier."""
    ends = [
        ends[0]
        for rules in document["clouds"].values()
        for ends in (
            rules.get("internet_tier_upto_gib"),
            (rules.get(_STANDARD_TIER) or {}).get("tier_upto_gib"),
        )
        if ends
    ]
    # The end of a tier in GiB is a larger number in GB, so this is at most the end of each.
    return float(min(ends, default=0.0))


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
