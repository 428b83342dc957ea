"""Laws that hold on random grids: a few fixed examples in each run, many new ones in the soak."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from tests.planner.conftest import grid_of

from skyplane_orchestration.grids import Grid, InstanceType

TAGS: Final = ("aws:s", "gcp:t", "azure:u", "aws:v", "gcp:w", "azure:x", "aws:y")
CLOUDS: Final = ("aws", "gcp", "azure")
SOAK_EXAMPLES: Final = 400

Edges = dict[tuple[str, str], tuple[float, float]]


def law(examples: int, **strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test of a function over random arguments."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        soak = pytest.param(SOAK_EXAMPLES, marks=pytest.mark.soak)

        @pytest.mark.parametrize("examples", [examples, soak])
        def test(examples: int) -> None:
            # Each example takes a search, so a failing one is not made smaller.
            rules = settings(
                max_examples=examples,
                deadline=None,
                database=None,
                derandomize=examples != SOAK_EXAMPLES,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.explicit, Phase.generate],
            )
            rules(given(**strategies)(check))()

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def tenths(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda number: number / 10)


def thousandths(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda number: number / 1000)


@st.composite
def grids(
    draw: st.DrawFn,
    fewest: int,
    most: int,
    *,
    types: int = 2,
    least_tenths: int = 0,
    direct: bool = False,
) -> Grid:
    """Random rates and prices between the first of `TAGS`, random instance types per cloud.

    Args:
        types: most instance types per cloud.
        least_tenths: least rate of an edge in tenths of a Gbit/s.
        direct: whether the first two regions have an edge.
    """
    tags = TAGS[: draw(st.integers(fewest, most))]
    rate, price = tenths(least_tenths, 90), thousandths(0, 200)
    edges: Edges = {
        (src, dst): (draw(rate), draw(price)) for src in tags for dst in tags if src != dst
    }
    if direct:
        edges[tags[0], tags[1]] = (max(edges[tags[0], tags[1]][0], 0.5), 0.05)
    kinds = [
        instance_type(draw, cloud, f"{cloud}-{number}", vcpus=st.sampled_from([2, 4, 16]))
        for cloud in CLOUDS
        for number in range(draw(st.integers(1, types)))
    ]
    return grid_of(edges, kinds)


def instance_type(
    draw: st.DrawFn, cloud: str, name: str, **others: st.SearchStrategy[Any]
) -> InstanceType:
    """A random type; `others` replace the strategies of single fields."""
    fields: Mapping[str, st.SearchStrategy[Any]] = {
        "vcpus": st.just(4),
        "egress_gbps": st.integers(2, 12).map(float),
        "ingress_gbps": st.integers(2, 12).map(float),
        "connection_limit": st.sampled_from([8, 32, 64]),
        "usd_per_hour": st.sampled_from([0.0, 0.2, 1.5, 20.0]),
        "instance_limit": st.integers(1, 3),
        **others,
    }
    return InstanceType(cloud, name, **{field: draw(value) for field, value in fields.items()})
