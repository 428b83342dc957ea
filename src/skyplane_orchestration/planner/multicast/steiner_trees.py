"""Distribution trees: the cheapest Steiner arborescence, and its near neighbours.

By Dreyfus and Wagner (Networks 1, 1971), for directed graphs. The cheapest tree from region v to a
subset S of the destinations either continues to one next region, or splits at v into two trees for
two parts of S. 3^k V + 2^k shortest-path sweeps, vectorised over V.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import networkx as nx
import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Ints, Mask

#: (tail, head) indices in order: a tree from the source whose leaves are destinations.
Tree = tuple[tuple[int, int], ...]
#: Replaces the next region where a tree splits or ends.
_STOP = -1


@dataclass(frozen=True, slots=True, eq=False)
class CheapestTrees:
    """The cheapest trees from every region to every subset of the destinations.

    Subsets are bit masks over the k destinations; index 0 (none) is unused.

    Attributes:
        cost: (2^k, V) cost of the cheapest tree, infinite if there is none.
        next_region: (2^k, V) the next region, or `_STOP`.
        part: (2^k, V) where the tree splits: one of the two parts, 0 at its end.
        from_source, before: (V,) shortest distance from the source, and the previous region.
    """

    source: int
    destinations: tuple[int, ...]
    cost: Floats
    next_region: Ints
    part: Ints
    from_source: Floats
    before: Ints

    @property
    def all_destinations(self) -> int:
        return (1 << len(self.destinations)) - 1

    @property
    def least(self) -> float:
        """Cost of the cheapest tree to all destinations; infinite if there is none."""
        return float(self.cost[self.all_destinations, self.source])

    def trees(self, below: float, most: int) -> list[Tree]:
        """Up to `most` different trees near the cheapest one, itself first; each costs < `below`.

        Neighbours: the cheapest tree through each region, and the cheapest two trees for each split
        of the destinations at the source.
        """
        all_destinations, source = self.all_destinations, self.source
        through = self.from_source + self.cost[all_destinations]
        parted = [
            (float(self.cost[part, source] + self.cost[all_destinations ^ part, source]), part)
            for part in range(1, (all_destinations + 1) // 2)
        ]
        neighbours: list[tuple[float, int, int]] = [
            *((float(through[v]), 0, int(v)) for v in np.argsort(through, kind="stable")[:most]),
            *((cost, 1, part) for cost, part in parted),
        ]
        found: dict[Tree, None] = {}
        for cost, is_parting, what in sorted(neighbours):
            if not cost < below or len(found) >= most:
                break
            if is_parting:
                edges = [*self._edges(source, what), *self._edges(source, all_destinations ^ what)]
            else:
                edges = [*self._path_to(what), *self._edges(what, all_destinations)]
            found.setdefault(prune(edges, source, self.destinations))
        return list(found)

    def _edges(self, region: int, subset: int) -> Iterator[tuple[int, int]]:
        open_ends = [(region, subset)]
        while open_ends:
            here, wanted = open_ends.pop()
            next_region, part = int(self.next_region[wanted, here]), int(self.part[wanted, here])
            if next_region != _STOP:
                yield here, next_region
                open_ends.append((next_region, wanted))
            elif part:
                open_ends.extend([(here, part), (here, wanted ^ part)])

    def _path_to(self, region: int) -> Iterator[tuple[int, int]]:
        while self.before[region] != _STOP:
            yield int(self.before[region]), region
            region = int(self.before[region])


def cheapest_trees(cost: Floats, source: int, destinations: Sequence[int]) -> CheapestTrees:
    """Cheapest trees for edge costs (V, V) >= 0, infinite where there is no edge."""
    regions, subsets = len(cost), 1 << len(destinations)
    least = np.full((subsets, regions), np.inf)
    next_region = np.full((subsets, regions), _STOP, dtype=np.int64)
    part = np.zeros((subsets, regions), dtype=np.int64)
    for subset in range(1, subsets):
        start = np.full(regions, np.inf)
        if subset & (subset - 1) == 0:
            start[destinations[subset.bit_length() - 1]] = 0.0
        for one in _parts(subset):
            both = least[one] + least[subset ^ one]
            part[subset] = np.where(both < start, one, part[subset])
            start = np.minimum(both, start)
        least[subset], next_region[subset] = _shortest_to(cost, start)
    at_source = np.full(regions, np.inf)
    at_source[source] = 0.0
    from_source, before = _shortest_to(cost.T, at_source)
    return CheapestTrees(
        source, tuple(map(int, destinations)), least, next_region, part, from_source, before
    )


def _parts(subset: int) -> Iterator[int]:
    """Proper parts of a subset that hold its lowest member, so that each split appears once."""
    lowest = subset & -subset
    part = (subset - 1) & subset
    while part:
        if part & lowest:
            yield part
        part = (part - 1) & subset


def _shortest_to(cost: Floats, start: Floats) -> tuple[Floats, Ints]:
    """Bellman and Ford: value[v] = min(start[v], cost[v, u] + value[u]), and the u of each v."""
    value = start.copy()
    next_region = np.full(len(value), _STOP, dtype=np.int64)
    everywhere = np.arange(len(value))
    while True:
        by_next = cost + value[None, :]
        best = by_next.argmin(axis=1)
        reached = by_next[everywhere, best]
        better = reached < value
        if not better.any():
            return value, next_region
        value = np.where(better, reached, value)
        next_region = np.where(better, best, next_region)


def prune(edges: Iterable[tuple[int, int]], source: int, destinations: Sequence[int]) -> Tree:
    """A tree inside these edges that reaches every destination, without other leaves."""
    parent = dict(nx.bfs_predecessors(nx.DiGraph(sorted(set(edges))), source))
    kept: set[tuple[int, int]] = set()
    for end in destinations:
        region = end
        while region != source:
            kept.add((parent[region], region))
            region = parent[region]
    return tuple(sorted(kept))


def all_trees(usable: Mask, source: int, destinations: Sequence[int]) -> list[Tree]:
    """Every tree, for few regions: each region chooses its parent."""
    ends = set(map(int, destinations))
    connected = usable.any(axis=0) & usable.any(axis=1)
    relays = [v for v in np.flatnonzero(connected).tolist() if v != source and v not in ends]
    found: dict[Tree, None] = {}
    for count in range(len(relays) + 1):
        for chosen in combinations(relays, count):
            heads = sorted([*ends, *chosen])
            tails = [[u for u in (source, *heads) if usable[u, v]] for v in heads]
            for choice in product(*tails):
                edges = list(zip(choice, heads, strict=True))
                if set(chosen) <= set(choice) and _all_reached(edges, source):
                    found.setdefault(tuple(sorted(edges)))
    return list(found)


def _all_reached(edges: Sequence[tuple[int, int]], source: int) -> bool:
    """True when every head is connected to the source; each has one parent."""
    parent = {head: tail for tail, head in edges}
    for head in parent:
        region, steps = head, 0
        while region != source:
            region, steps = parent[region], steps + 1
            if steps > len(edges):
                return False
    return True
