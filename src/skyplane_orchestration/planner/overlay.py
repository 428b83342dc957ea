"""The overlay: regions, instances, connections and paths that carry one transfer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyplane_orchestration.grids import InstanceType


@dataclass(frozen=True, slots=True)
class Overlay:
    """What to build, by region tag; rates in Gbit/s.

    Attributes:
        paths: regions of a path -> flow.
        flows: edge -> flow, the sum over the paths that use it.
        connections: edge -> connections over the whole edge.
        instances: region -> instances, for every region on a path.
        types: region -> instance type; empty for baselines.
    """

    throughput_gbps: float
    paths: Mapping[tuple[str, ...], float]
    flows: Mapping[tuple[str, str], float]
    connections: Mapping[tuple[str, str], int]
    instances: Mapping[str, int]
    types: Mapping[str, InstanceType] = field(default_factory=dict)
