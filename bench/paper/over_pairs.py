"""The page's sections on all pairs: Fig. 7, Fig. 8 and Fig. 10."""

from __future__ import annotations

from bench.paper import ron
from bench.paper.ablation import PAPER_MOST_GBPS, Ablation, CloudPair
from bench.paper.bottlenecks import PAPER_SOURCE_LINK_REDUCTION, Bottlenecks
from bench.paper.causes import RECEIVED, THROTTLE, THROTTLE_RECEIVED
from bench.paper.instances import PAPER_BETWEEN, PAPER_WITHIN, Distance, Instances
from bench.paper.sweep import BUDGETS
from bench.paper.tables import IMAGES, UNKNOWN, Compared, compared, percent, table
from bench.paper.utilisation import CONNECTIONS, LOCATIONS, RELAY_LINK, SOURCE_LINK, SOURCE_VM


def figure_7(found: Ablation) -> str:
    budgets = [f"{budget:g}" for budget in BUDGETS]
    header = (
        "from > to",
        "pairs",
        "direct, median",
        "with relays, median",
        "speedup",
        *(f"at {budget} x the price" for budget in budgets),
        "pairs > 1 % faster",
        "price, median x direct",
        "speedup, received",
    )
    rows = [_cloud_row(pair, budgets) for pair in (*found.cloud_pairs, found.every)]
    most = [
        Compared(
            f"most out of {cloud}",
            max(pair.overlay_most for pair in found.cloud_pairs if pair.src_cloud == cloud),
            limit,
            UNKNOWN,
            1,
        )
        for cloud, limit in PAPER_MOST_GBPS.items()
        if any(pair.src_cloud == cloud for pair in found.cloud_pairs)
    ]
    best = max(found.cloud_pairs, key=lambda pair: pair.speedup)
    least = min(found.cloud_pairs, key=lambda pair: pair.speedup)
    every = found.every
    return f"""## Fig. 7: the gain from relays

Predicted throughput of all pairs by source and destination cloud, on the direct path and with
relays. There is one instance per region, because the paper says that nothing out of AWS exceeds 5
and nothing out of GCP 7. The paper states no price ceiling here, so the plans are the fastest at
any price. Two columns add ceilings. Speedups are geometric means over the pairs.

{table(header, rows)}

The paper's medians and speedups are in the picture only. Its text says that relays "meaningfully"
improve throughput, and names two caps:

{compared(most)}

The caps are limits of the model, so no plan can exceed them. Relays gain most from
{best.src_cloud} to {best.dst_cloud} ({best.speedup:.2f} times) and least from
{least.src_cloud} to {least.dst_cloud} ({least.speedup:.2f} times). Over all pairs the gain is
{every.received_speedup:.2f} times in received rates and {every.speedup:.2f} times in sent rates. In
the median a direct path has {percent(every.received_direct_share)} of the received rate of the
fastest plan, and {percent(every.direct_share)} of its sent rate.

![Fig. 7](../{IMAGES}/figure-7.svg)"""


def _cloud_row(pair: CloudPair, budgets: list[str]) -> tuple[str, ...]:
    name = "all pairs" if pair.src_cloud == "all" else f"{pair.src_cloud} > {pair.dst_cloud}"
    return (
        name,
        str(pair.pairs),
        f"{pair.direct_median:.2f}",
        f"{pair.overlay_median:.2f}",
        f"{pair.speedup:.2f}",
        *(f"{pair.within[budget]:.2f}" for budget in budgets),
        percent(pair.faster),
        f"{pair.price_ratio:.2f}",
        f"{pair.received_speedup:.2f}",
    )


def figure_8(found: Bottlenecks) -> str:
    rows = [
        (name, percent(found.direct[name]), percent(found.overlay[name]))
        for name in (*LOCATIONS, CONNECTIONS)
    ]
    rows.append(("no VM at 99 %", percent(found.direct_network), percent(found.overlay_network)))
    rows.append(("nothing at 99 %", percent(found.direct_none), percent(found.overlay_none)))
    held = " and ".join(
        f"within {budget} times the direct price {percent(share)}"
        for budget, share in found.unmoved.items()
    )
    reduction = Compared(
        "decrease of transfers limited by the source link, in percentage points",
        100 * found.source_link_points,
        100 * PAPER_SOURCE_LINK_REDUCTION,
        "the paper does not say whether its 32 % are points of all transfers or a share of the"
        f" transfers that the link limited (ours: {percent(found.source_link_reduction)}). Nor does"
        f" it name the price ceiling of its plans. Ours have none; {held} of all transfers are"
        " limited by that link and at most 1 % faster than directly. Whether a ceiling explains all"
        " of the difference is not known.",
        0,
    )
    leading = max(LOCATIONS, key=lambda name: found.direct[name])
    agrees = "as in the paper" if leading == SOURCE_LINK else "unlike in the paper"
    return f"""## Fig. 8: where the bottleneck is

The plans are those of Fig. 7. A location is full from 99 % of its limit, and several may be full at
once. A VM is full when the instances of its region send or receive at their limit. A link is full
when its flow is the measured rate of one pair of instances, times the number of pairs.
"Connections" is not one of the paper's five locations: nothing else is full, but all 64 connections
of an instance run at full rate, spread over several links.

{table(("location", "direct path", "with relays"), rows)}

Without relays the most common bottleneck is the {leading}, {agrees}; the source VM limits
{percent(found.direct[SOURCE_VM])} ("a small set of cases" in the paper). With relays the source
VM limits {percent(found.overlay[SOURCE_VM])} and a link that leaves a relay
{percent(found.overlay[RELAY_LINK])}. {_shift(found)} The paper's shares by location are in
the picture only. Equally fast plans at nearly the same price may fill one link or several. So the
split between links and connections can vary, but not the number of transfers without a full VM.

{compared([reduction])}

![Fig. 8](../{IMAGES}/figure-8.svg)"""


def _shift(found: Bottlenecks) -> str:
    moved = found.overlay[SOURCE_VM] > found.direct[SOURCE_VM] and found.source_link_points > 0
    if moved:
        return "The bottleneck moves from the network to the VM, as the paper says."
    return "The paper sees the bottleneck move from the network to the VM; here it does not."


def figure_10(found: Instances) -> str:
    rows = [
        (
            name,
            str(distance.pairs),
            f"{distance.speedup:.2f}",
            f"{distance.equal_total:.2f}",
            f"{distance.example.src} > {distance.example.dst}",
            f"{distance.example.speedup:.2f}",
        )
        for name, distance in (
            ("between continents", found.between),
            ("within a continent", found.within),
        )
    ]
    header = (
        "",
        "pairs",
        "speedup, equal instances per region",
        "speedup, equal instances in all",
        "pair with the median",
        "its speedup over the counts",
    )
    beside = [
        _distance_row("between continents", found.between, PAPER_BETWEEN),
        _distance_row("within a continent", found.within, PAPER_WITHIN),
    ]
    return f"""## Fig. 10: relays, or more instances on the direct path

The text names neither route. "A limited number of VMs (4.3)" can mean as many instances in each
region as the direct path has at each end, or as many in all. The table has both, over all pairs and
at any price; a region's country gives its continent. We compare the first, because section 4.3
limits instances per region. In the model rates are proportional to instances, so one instance per
region gives the speedup of any number.

{table(header, rows)}

{compared(beside)}

{_readings(found)}

With as many instances in all as the direct path, relays are worth {found.between.equal_total:.2f}
times between continents and {found.within.equal_total:.2f} times within one: each instance at a
relay leaves one fewer for the ends. The plots show the pair with the median speedup of its group.

![Fig. 10](../{IMAGES}/figure-10.svg)"""


def _distance_row(name: str, distance: Distance, paper: float) -> Compared:
    return Compared(
        f"speedup {name}",
        distance.speedup,
        paper,
        f"ours is the mean over {distance.pairs} pairs, the paper's the mean over several numbers"
        " of VMs on one route. Its text does not name the route, nor say whether it was measured or"
        f" predicted. {percent(distance.as_fast)} of our pairs have at least the paper's.",
    )


def _readings(found: Instances) -> str:
    between, within = found.between, found.within
    rows = [
        ("as above", f"{between.speedup:.2f}", f"{within.speedup:.2f}"),
        *(
            (name, f"{between.readings[name]:.2f}", f"{within.readings[name]:.2f}")
            for name in between.readings
        ),
        (
            "as above, pairs with a slow direct path",
            f"{between.slow_speedup:.2f} ({between.slow_pairs} pairs)",
            f"{within.slow_speedup:.2f} ({within.slow_pairs} pairs)",
        ),
        ("the paper", f"{PAPER_BETWEEN:.2f}", f"{PAPER_WITHIN:.2f}"),
    ]
    missing = PAPER_BETWEEN - between.speedup
    throttle, received, both = (
        (between.readings[name] - between.speedup) / missing
        for name in (THROTTLE, RECEIVED, THROTTLE_RECEIVED)
    )
    named = ", ".join(f"{gain:.2f}" for gain in found.named)
    return f"""What other readings would change (means over all pairs, relaxed, computed at commit
`{found.readings_commit}`):

{table(("", "between continents", "within a continent"), rows)}

- GCP's limit. The caption of Fig. 3 places the 7 between clouds. This explains
  {percent(throttle)} of what is missing between continents. But then GCP sends up to
  {found.throttled_most_gbps:.1f} to other clouds, over relays in GCP, and the text on Fig. 7 says
  that nothing that leaves GCP exceeds 7. Nor would faster links within GCP, by private addresses,
  explain the rest: 16 is what one instance takes in.
- Received rates. They explain {percent(received)} of what is missing, and leave the mean within a
  continent nearly as it is. With GCP's limit between clouds they explain {percent(both)}. A
  transfer that is measured has received rates, so this fits a figure that was measured.
- A slow direct path. Table 2 measured {ron.PAPER[ron.DIRECT][0]} on the direct path, less than its
  pair has in the grid. If all direct paths alone were as slow, both speedups would be far above the
  paper's, so it is no property of all pairs.
- The route. The caption of Fig. 10 speaks of a direct path that is slow. Those with less than half
  of what an instance at the source may send gain more than the paper's route. Other routes
  between continents that the paper names have {named}.

What remains is the choice of the route: the mean of all pairs is below the paper's by any reading
that the text supports, and that of pairs with a slow direct path is above."""
