"""What a gateway is told: its own configuration, the topology, a transfer.

Plain values with a JSON form; part of the package's public face, so that whoever
starts gateways builds exactly what they read.

docs/explanation/memory.md says what memory a gateway takes with these figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from skyplane_gateway.errors import ConfigurationInvalid
from skyplane_gateway.objects import StoreSpec
from skyplane_gateway.schema import decode

#: Version of the control API's documents; see docs/explanation/architecture.md.
CONTROL_VERSION: Final = 1

#: What to do with an object that is already at the destination.
ConflictRule = Literal["fail", "skip", "replace", "replace-if-newer", "replace-if-different"]

#: How a written object is checked: `stored` compares the store's checksum, or reads the
#: object back where the checksum cannot be trusted; `reread` always reads it back.
Verification = Literal["stored", "reread", "none"]

#: State of a transfer in the status document.
TransferState = Literal["running", "succeeded", "failed", "cancelled"]

MIB: Final = 1 << 20

#: Most connections of one gateway pair; beyond this a single instance gains nothing
#: (paper section 4.2: throughput saturates near 64).
MAX_CONNECTIONS: Final = 64

_HELLO_KEY_BYTES: Final = 32

#: Requests to object stores at the same time.
DEFAULT_STORE_THREADS: Final = 16

#: Listeners, calls of other gateways and of orchestrators, journal, reports, log.
_FILES_OF_ANY_GATEWAY: Final = 48

_DURATIONS: Final = (
    "start_within_s",
    "lease_s",
    "hard_end_s",
    "ack_deadline_s",
    "stall_deadline_s",
    "write_timeout_s",
)


def _require_key(peer: str, text: str) -> None:
    try:
        length = len(bytes.fromhex(text))
    except ValueError:
        length = 0
    if length != _HELLO_KEY_BYTES:
        raise ConfigurationInvalid(
            f"hello_keys_hex: that of {peer} is not the hex of {_HELLO_KEY_BYTES} bytes"
        )


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """How one gateway process runs.

    Args:
        node: name in the fleet, `region tag/index`.
        fleet_key: identity of the fleet; appears in the command line, so that
            processes can be found by it.
        control_host, data_host: addresses to listen on; port 0 lets the system choose.
        directory: private directory (mode 0700) of this gateway: configuration,
            certificates, log; removed when the gateway ends.
        hello_keys_hex: neighbour -> the 32 bytes that this gateway and that neighbour
            prove themselves with to each other, and that no third one has.
        start_within_s: first lease: time from start to the first renewal.
        lease_s: how long the gateway lives unrenewed after that.
        hard_end_s: the end, whatever happens, counted from start.
        assembly_mib: memory for chunks that a sink is putting together.
        readers: chunks that a source reads at the same time.
        store_threads: requests to object stores at the same time.
        ack_deadline_s: longest silence of a path that has chunks to deliver: then they go
            again, by another one where there is one. To wait for a store that throttles is
            no silence.
        stall_deadline_s: how long a transfer waits while no path is up and nothing arrives,
            before it fails with what a resume needs; at least `ack_deadline_s`, and twice
            that when None. A path that broke may be built again within that time.
        write_timeout_s: a neighbour that takes nothing of what is sent to it for so long is
            gone, and its path with it.
    """

    node: str
    fleet_key: str
    control_host: str
    data_host: str
    directory: str
    hello_keys_hex: Mapping[str, str] = field(repr=False, default_factory=dict)
    control_port: int = 0
    data_port: int = 0
    start_within_s: float = 900.0
    lease_s: float = 120.0
    hard_end_s: float = 24 * 3600.0
    assembly_mib: int = 256
    readers: int = 8
    store_threads: int = DEFAULT_STORE_THREADS
    ack_deadline_s: float = 120.0
    stall_deadline_s: float | None = None
    write_timeout_s: float = 60.0

    @property
    def stalled_after_s(self) -> float:
        """The stall deadline that holds."""
        return self.stall_deadline_s or 2 * self.ack_deadline_s

    @property
    def certificate_path(self) -> Path:
        return Path(self.directory) / "gateway.pem"

    @property
    def authority_path(self) -> Path:
        return Path(self.directory) / "authority.pem"

    @property
    def ready_path(self) -> Path:
        """Written once the gateway listens: JSON with `control_port` and `data_port`."""
        return Path(self.directory) / "ready.json"

    @property
    def log_path(self) -> Path:
        return Path(self.directory) / "gateway.log"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GatewayConfig:
        """Raises ConfigurationInvalid for a broken document."""
        return decode(cls, data, "the gateway configuration")

    def __post_init__(self) -> None:
        for peer, text in self.hello_keys_hex.items():
            _require_key(peer, text)
        for name in _DURATIONS:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigurationInvalid(f"{name} must be positive and finite, not {value!r}")
        if self.stalled_after_s < self.ack_deadline_s:
            raise ConfigurationInvalid(
                f"stall_deadline_s must be at least ack_deadline_s ({self.ack_deadline_s:g}), "
                f"not {self.stall_deadline_s!r}: a path is silent for that long before it is lost"
            )
        for name in ("assembly_mib", "readers", "store_threads"):
            count = getattr(self, name)
            if not isinstance(count, int) or count < 1:
                raise ConfigurationInvalid(f"{name} must be at least 1 and whole, not {count!r}")


def files_needed(connections: int, store_threads: int) -> int:
    """Files and sockets that a gateway must be able to open.

    Args:
        connections: data connections with all of its neighbours.
        store_threads: see `GatewayConfig`; there are three pools of as many.
    """
    # Half of what it may open is for connections that have proven nothing; see `strangers`.
    return 2 * (_FILES_OF_ANY_GATEWAY + 3 * store_threads + connections)


@dataclass(frozen=True, slots=True)
class Route:
    """A path's number on the wire: one gateway after another, source first.

    Args:
        number: unique in the fleet.
        nodes: gateway names; a single one is source and sink at once.
        connections: parallel TCP connections of each hop (len(nodes) - 1 values).
        share_gbps: the plan's flow over this route; its weight in dispatching.
        dialed_by_downstream: hops (by index) that the downstream gateway dials,
            because the upstream one cannot (NAT, private subnet).
    """

    number: int
    nodes: tuple[str, ...]
    connections: tuple[int, ...]
    share_gbps: float
    dialed_by_downstream: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes or len(self.connections) != len(self.nodes) - 1:
            raise ConfigurationInvalid(f"route {self.number}: needs a connection count per hop")
        if len(set(self.nodes)) != len(self.nodes):
            raise ConfigurationInvalid(f"route {self.number}: a gateway appears twice")
        if any(not 1 <= count <= MAX_CONNECTIONS for count in self.connections):
            raise ConfigurationInvalid(
                f"route {self.number}: connections per hop must be 1 to {MAX_CONNECTIONS}"
            )
        if not 0 < self.share_gbps < math.inf:
            raise ConfigurationInvalid(f"route {self.number}: its share must be above zero")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Route:
        """Raises ConfigurationInvalid for a broken document."""
        return decode(cls, data, "a route")


@dataclass(frozen=True, slots=True)
class Topology:
    """Who carries what: all routes of a fleet and where its gateways listen.

    Args:
        data_addresses: node -> (host, port) of its data listener.
        control_addresses: node -> (host, port) of its control API.
    """

    routes: tuple[Route, ...]
    data_addresses: Mapping[str, tuple[str, int]]
    control_addresses: Mapping[str, tuple[str, int]]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route.nodes[0] for route in self.routes))

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route.nodes[-1] for route in self.routes))

    def to_dict(self) -> dict[str, Any]:
        return {
            "routes": [asdict(route) for route in self.routes],
            "data_addresses": {node: list(pair) for node, pair in self.data_addresses.items()},
            "control_addresses": {
                node: list(pair) for node, pair in self.control_addresses.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Topology:
        """Raises ConfigurationInvalid for a broken document."""
        return decode(cls, data, "the topology")


@dataclass(frozen=True, slots=True)
class TransferSpec:
    """What the lead is asked to do; holds no credential.

    Args:
        source, destination: the stores at both ends.
        source_prefix, destination_prefix: key or prefix in them.
        recursive: the source is a prefix.
        include, exclude: globs on the key below the source prefix.
        publish_last: further globs of objects to be written after all others.
        allow_empty: an empty source is success.
        allow_failed: so is a transfer of which single objects failed, and nobody goes on
            with it.
        chunk_bytes: size of a chunk and of a part.
        strict_metadata: an object fails whose copy would lack tags, storage class or the like.
    """

    source: StoreSpec
    destination: StoreSpec
    source_prefix: str
    destination_prefix: str
    recursive: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    conflict: ConflictRule = "replace"
    publish_last: tuple[str, ...] = ()
    verify: Verification = "stored"
    allow_empty: bool = False
    allow_failed: bool = False
    chunk_bytes: int = 16 * MIB
    strict_metadata: bool = False

    def to_dict(self) -> dict[str, Any]:
        document = asdict(self)
        document["source"] = self.source.to_dict()
        document["destination"] = self.destination.to_dict()
        return document

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TransferSpec:
        """Raises ConfigurationInvalid for a broken document."""
        return decode(cls, data, "the transfer specification")
