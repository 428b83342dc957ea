"""What the processors of an instance let its gateways carry, by what they do with each byte."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

#: What a gateway does with a byte: reads and sends it, receives and sends it, receives and
#: writes it.
Role = Literal["source", "relay", "sink"]
SOURCE: Final = "source"
RELAY: Final = "relay"
SINK: Final = "sink"

#: Gateway processes of an instance: one per vCPU, up to this.
MOST_PROCESSES: Final = 8


@dataclass(frozen=True, slots=True)
class GatewaySpeed:
    """Gbit/s that one busy vCPU carries: frames sealed, stores over TLS.

    Attributes:
        as_of, measured_on: the date, and the machine and the commit.
    """

    source_gbps: float
    relay_gbps: float
    sink_gbps: float
    as_of: str
    measured_on: str

    @property
    def provenance(self) -> str:
        """`measured DATE on MACHINE`."""
        return f"measured {self.as_of or 'on an unknown date'} on {self.measured_on}"

    def gbps(self, *roles: Role) -> float:
        """Of a vCPU that does all of this with each byte: the seconds of a bit add up."""
        rates = {SOURCE: self.source_gbps, RELAY: self.relay_gbps, SINK: self.sink_gbps}
        return 1 / sum(1 / rates[role] for role in roles)
