"""A rate that somebody has measured on one edge."""

from __future__ import annotations

from dataclasses import dataclass

from skyplane_gateway.common.schema import Document


@dataclass(frozen=True, slots=True)
class EdgeMeasurement(Document, what="a measurement of an edge"):
    """What one edge carried, measured between gateways.

    Attributes:
        src, dst: region tags.
        gbps: steady rate of all `instances` together, Gbit/s; the start is left out.
        connections: TCP connections of all `instances` together.
        instances: at each end.
        seconds: of the steady part.
        bytes: that arrived in these seconds.
        at_unix_s: when the measurement ended, seconds since 1970 in UTC.
        kind: `probed`, of traffic that was sent to measure; `achieved`, of a transfer.
        modelled_gbps: what the grid said before, of one instance at each end; None if unknown.
        usd: egress of all that was sent to measure, at the grid's prices.
    """

    src: str
    dst: str
    gbps: float
    connections: int
    instances: int
    seconds: float
    bytes: int
    at_unix_s: float
    kind: str = "probed"
    modelled_gbps: float | None = None
    usd: float = 0.0
