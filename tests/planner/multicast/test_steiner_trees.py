"""Distribution trees: the cheapest is the cheapest of all, and neighbours are trees."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings, strategies as st

from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.planner.multicast.steiner_trees import (
    Tree,
    all_trees,
    cheapest_trees,
    prune,
)

small = settings(max_examples=60, deadline=None)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Floats, list[int]]:
    """Edge costs, with ties, free edges and gaps, and the destinations; the source is 0."""
    regions = draw(st.integers(2, 5))
    cost = st.one_of(st.just(math.inf), st.integers(0, 6).map(float))
    matrix = np.array([[draw(cost) for _ in range(regions)] for _ in range(regions)])
    np.fill_diagonal(matrix, np.inf)
    matrix[:, 0] = np.inf
    count = draw(st.integers(1, regions - 1))
    return matrix, list(range(1, count + 1))


def price(cost: Floats, tree: Tree) -> float:
    return sum(float(cost[edge]) for edge in tree)


def spanned(cost: Floats, destinations: list[int]) -> float:
    """The least cost of any set of edges that joins the source to all: by trying all sets."""
    edges = [tuple(map(int, edge)) for edge in np.argwhere(np.isfinite(cost))]
    best = math.inf
    for mask in range(1 << len(edges)):
        chosen = [edge for number, edge in enumerate(edges) if mask >> number & 1]
        total = sum(float(cost[edge]) for edge in chosen)
        if total >= best:
            continue
        reached = {0}
        for _ in edges:
            reached |= {head for tail, head in chosen if tail in reached}
        if reached.issuperset(destinations):
            best = total
    return best


@small
@given(network=networks())
def test_the_cheapest_tree_is_the_cheapest_of_all_trees(
    network: tuple[Floats, list[int]],
) -> None:
    cost, destinations = network
    trees = all_trees(np.isfinite(cost), 0, destinations)
    found = cheapest_trees(cost, 0, destinations)
    assert found.least == min((price(cost, tree) for tree in trees), default=math.inf)
    near = found.trees(math.inf, 20)
    assert set(near) <= set(trees)
    assert bool(near) == bool(trees)
    if near:
        assert price(cost, near[0]) == found.least


@given(network=networks().filter(lambda one: np.isfinite(one[0]).sum() <= 9))
@small
def test_no_set_of_edges_is_cheaper_than_the_cheapest_tree(
    network: tuple[Floats, list[int]],
) -> None:
    cost, destinations = network
    assert cheapest_trees(cost, 0, destinations).least == spanned(cost, destinations)


def test_only_trees_below_the_price_come_and_no_more_than_asked_for() -> None:
    cost = np.full((4, 4), 1.0)
    np.fill_diagonal(cost, np.inf)
    found = cheapest_trees(cost, 0, [1, 2])
    assert found.least == 2.0
    assert found.trees(2.0, 10) == []
    assert len(found.trees(math.inf, 2)) == 2


def test_what_leads_nowhere_or_twice_to_the_same_place_is_cut_off() -> None:
    edges = [(0, 1), (1, 2), (0, 2), (2, 3), (3, 1), (0, 4)]
    assert prune(edges, 0, [3]) == ((0, 2), (2, 3))


def test_every_tree_of_three_regions_is_there_once() -> None:
    usable = ~np.eye(3, dtype=bool)
    usable[:, 0] = False
    assert sorted(all_trees(usable, 0, [1, 2])) == [
        ((0, 1), (0, 2)),
        ((0, 1), (1, 2)),
        ((0, 2), (2, 1)),
    ]
    assert sorted(all_trees(usable, 0, [1])) == [((0, 1),), ((0, 2), (2, 1))]
