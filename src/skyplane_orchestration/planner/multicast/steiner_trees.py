"""Distribution trees: the cheapest Steiner arborescence, and its near neighbours.

Dreyfus and Wagner (Networks 1, 1971), for directed graphs: the cheapest tree from region v
to a subset S of the destinations either goes on to one next region, or parts here into two
trees for two parts of S. 3^k V + 2^k shortest-path sweeps, vectorised over V.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from skyplane_orchestration.planner.problem import Floats, Ints, Mask

#: (tail, head) indices in order: a tree from the source whose every leaf is a destination.
Tree = tuple[tuple[int, int], ...]
#: Marks a region where a tree parts, or ends, in place of a next region.
_HERE = -1


@dataclass(frozen=True, slots=True, eq=False)
class CheapestTrees:
    """The cheapest trees from every region to every subset of the destinations.

    Subsets are bit masks over the k destinations; index 0 (none) is never looked at.

    Attributes:
        cost: (2^k, V) cost of the cheapest tree, infinite where there is none.
        onward: (2^k, V) the next region on the way, or `_HERE`.
        part: (2^k, V) where the tree parts here: one of the two parts, 0 at its end.
    """

    source: int
    destinations: tuple[int, ...]
    cost: Floats
    onward: Ints
    part: Ints
    to_source: Floats
    before: Ints

    @property
    def everyone(self) -> int:
        return (1 << len(self.destinations)) - 1

    @property
    def least(self) -> float:
        """Cost of the cheapest tree that reaches every destination; infinite without one."""
        return float(self.cost[self.everyone, self.source])

    def trees(self, below: float, most: int) -> list[Tree]:
        """Up to `most` different trees near the cheapest, itself first; each costs < `below`.

        Neighbours: the cheapest tree through each region, and the cheapest two trees for each
        way to part the destinations at the source.
        """
        everyone, source = self.everyone, self.source
        through = self.to_source + self.cost[everyone]
        parted = [
            (float(self.cost[part, source] + self.cost[everyone ^ part, source]), part)
            for part in range(1, (everyone + 1) // 2)
        ]
        wishes: list[tuple[float, int, int]] = [
            *((float(through[v]), 0, int(v)) for v in np.argsort(through, kind="stable")[:most]),
            *((cost, 1, part) for cost, part in parted),
        ]
        found: dict[Tree, None] = {}
        for cost, is_parting, what in sorted(wishes):
            if not cost < below or len(found) >= most:
                break
            if is_parting:
                edges = [*self._edges(source, what), *self._edges(source, everyone ^ what)]
            else:
                edges = [*self._path_to(what), *self._edges(what, everyone)]
            found.setdefault(pruned(edges, source, self.destinations))
        return list(found)

    def _edges(self, region: int, subset: int) -> Iterator[tuple[int, int]]:
        open_ends = [(region, subset)]
        while open_ends:
            here, wanted = open_ends.pop()
            onward, part = int(self.onward[wanted, here]), int(self.part[wanted, here])
            if onward != _HERE:
                yield here, onward
                open_ends.append((onward, wanted))
            elif part:
                open_ends.extend([(here, part), (here, wanted ^ part)])

    def _path_to(self, region: int) -> Iterator[tuple[int, int]]:
        while self.before[region] != _HERE:
            yield int(self.before[region]), region
            region = int(self.before[region])


def cheapest_trees(cost: Floats, source: int, destinations: Sequence[int]) -> CheapestTrees:
    """Cheapest trees for edge costs (V, V) >= 0, infinite where there is no edge."""
    regions, subsets = len(cost), 1 << len(destinations)
    least = np.full((subsets, regions), np.inf)
    onward = np.full((subsets, regions), _HERE, dtype=np.int64)
    part = np.zeros((subsets, regions), dtype=np.int64)
    for subset in range(1, subsets):
        start = np.full(regions, np.inf)
        if subset & (subset - 1) == 0:
            start[destinations[subset.bit_length() - 1]] = 0.0
        for one in _parts(subset):
            both = least[one] + least[subset ^ one]
            part[subset] = np.where(both < start, one, part[subset])
            start = np.minimum(both, start)
        least[subset], onward[subset] = _settled(cost, start)
    at_source = np.full(regions, np.inf)
    at_source[source] = 0.0
    to_source, before = _settled(cost.T, at_source)
    return CheapestTrees(
        source, tuple(map(int, destinations)), least, onward, part, to_source, before
    )


def _parts(subset: int) -> Iterator[int]:
    """Proper parts of a subset that hold its lowest member, so that each split comes once."""
    lowest = subset & -subset
    part = (subset - 1) & subset
    while part:
        if part & lowest:
            yield part
        part = (part - 1) & subset


def _settled(cost: Floats, start: Floats) -> tuple[Floats, Ints]:
    """Bellman and Ford: value[v] = min(start[v], cost[v, u] + value[u]), and the u of each v.

    An entry changes only for the better, so that the next regions never run in a circle.
    """
    value = start.copy()
    onward = np.full(len(value), _HERE, dtype=np.int64)
    everywhere = np.arange(len(value))
    while True:
        by_next = cost + value[None, :]
        best = by_next.argmin(axis=1)
        reached = by_next[everywhere, best]
        better = reached < value
        if not better.any():
            return value, onward
        value = np.where(better, reached, value)
        onward = np.where(better, best, onward)


def pruned(edges: Iterable[tuple[int, int]], source: int, destinations: Sequence[int]) -> Tree:
    """A tree inside these edges that reaches every destination, without what leads nowhere."""
    heads: dict[int, list[int]] = {}
    for tail, head in sorted(set(edges)):
        heads.setdefault(tail, []).append(head)
    parent = {source: source}
    queue = deque([source])
    while queue:
        region = queue.popleft()
        for head in heads.get(region, ()):
            if head not in parent:
                parent[head] = region
                queue.append(head)
    kept: set[tuple[int, int]] = set()
    for end in destinations:
        region = end
        while region != source:
            kept.add((parent[region], region))
            region = parent[region]
    return tuple(sorted(kept))


def all_trees(usable: Mask, source: int, destinations: Sequence[int]) -> list[Tree]:
    """Every tree there is, for a handful of regions: each region chooses where it gets from."""
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
    """True when every head hangs on the source; each has one parent."""
    parent = {head: tail for tail, head in edges}
    for head in parent:
        region, steps = head, 0
        while region != source:
            region, steps = parent[region], steps + 1
            if steps > len(edges):
                return False
    return True
