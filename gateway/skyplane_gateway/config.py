"""The documents of a gateway: its configuration, the topology, a probe, a transfer.

Plain values with a JSON form. A provisioner builds the same classes that a gateway reads.

docs/internals/memory.md relates these settings to a gateway's memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.job_options import JobOptions, Verification
from skyplane_gateway.common.kept_properties import KeptProperties, kept_properties_of
from skyplane_gateway.common.object_filter import ALL_OBJECTS, ObjectFilter
from skyplane_gateway.common.objects import Credentials, ObjectAttributes, StoreSpec
from skyplane_gateway.common.schema import Document, check

#: Version of the control API's documents; see docs/explanation/architecture.md.
CONTROL_VERSION: Final = 1

#: The end of a transfer at a gateway.
End = Literal["source", "sink"]

#: State of a transfer in the status document.
TransferState = Literal["running", "succeeded", "failed", "cancelled"]

MIB: Final = 1 << 20

#: Most connections of a hop: throughput saturates near 64 (paper section 4.2).
MAX_CONNECTIONS: Final = 64

#: Of the connections of a hop, a tree has so many for each of a route that follows it.
TREE_CONNECTIONS: Final = 3

#: Most sinks of a tree: the bits of the field that names those of a frame.
MAX_SINKS: Final = 16

#: Requests to object stores at the same time.
DEFAULT_STORE_THREADS: Final = 16

#: Open files besides connections and stores: listeners, control calls, journal, report, log.
_BASE_FILES: Final = 48

_DURATIONS: Final = (
    "start_within_s",
    "lease_s",
    "hard_end_s",
    "ack_deadline_s",
    "stall_deadline_s",
    "write_timeout_s",
)


def require_hex_of_32_bytes(name: str, text: str) -> None:
    """Raise ConfigurationInvalid for any other text; `name` is that of the value."""
    try:
        length = len(bytes.fromhex(text))
    except ValueError:
        length = 0
    if length != 32:
        raise ConfigurationInvalid(f"{name} is not the hex of 32 bytes")


@dataclass(frozen=True, slots=True)
class GatewayConfig(Document, what="the gateway configuration"):
    """How one gateway process runs.

    Args:
        node: name in the fleet, `region tag/index` or `region tag/index.process`.
        fleet_key: identity of the fleet; part of the command line, to find its processes.
        control_host, data_host: addresses to listen on; port 0 lets the system choose.
        directory: private directory (mode 0700) for configuration, certificates and log;
            removed when the gateway ends.
        hello_keys_hex: neighbour -> 32 bytes that only the two gateways share; they prove
            themselves with it.
        start_within_s: the first lease, from the start to the first renewal.
        lease_s: every later lease.
        hard_end_s: the end of life, counted from the start; no renewal exceeds it.
        assembly_mib: memory for the chunks that a sink assembles.
        readers: chunks that a source reads at the same time.
        store_threads: requests to object stores at the same time.
        ack_deadline_s: a path with chunks in flight and no acknowledgement for this long is
            lost. Its chunks are retried, on another path if there is one. Time that a store
            throttles does not count.
        stall_deadline_s: a transfer with no path and no progress for this long fails, and
            can be resumed. At least `ack_deadline_s`; None is twice that. A broken path may
            be rebuilt within this time.
        write_timeout_s: a neighbour that takes no bytes for this long is lost, with its path.
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
        """`stall_deadline_s`, or its default."""
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

    def __post_init__(self) -> None:
        check(self)
        for peer, text in self.hello_keys_hex.items():
            require_hex_of_32_bytes(f"hello_keys_hex: the key for {peer}", text)
        for name in _DURATIONS:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigurationInvalid(f"{name} must be a number above zero, not {value!r}")
        if self.stalled_after_s < self.ack_deadline_s:
            raise ConfigurationInvalid(
                f"stall_deadline_s must be at least ack_deadline_s ({self.ack_deadline_s:g}), "
                f"not {self.stall_deadline_s!r}: a silent path is lost only after that time"
            )
        for name in ("assembly_mib", "readers", "store_threads"):
            count = getattr(self, name)
            if count < 1:
                raise ConfigurationInvalid(f"{name} must be a whole number from 1, not {count!r}")


def files_needed(connections: int, store_threads: int) -> int:
    """Files and sockets that a gateway must be able to open at the same time.

    Args:
        connections: data connections with all neighbours.
        store_threads: size of each of three thread pools; see `GatewayConfig`.
    """
    # `pending_connections` takes up to half of the open files.
    return 2 * (_BASE_FILES + 3 * store_threads + connections)


@dataclass(frozen=True, slots=True)
class Route(Document, what="a route"):
    """A path through gateways, source first, and its number on the wire.

    Args:
        number: unique in the fleet.
        nodes: gateway names; a single node is both source and sink.
        connections: parallel TCP connections of each hop (len(nodes) - 1 values).
        share_gbps: the plan's flow over this route; its weight in dispatching.
        dialed_by_downstream: indices of hops that the downstream gateway dials, because the
            upstream one cannot (NAT, private subnet).
        over_ceiling_usd_per_gb: its egress per GB, less what the job's ceiling leaves for egress
            on average; 0 without a ceiling.
        tree: number of the tree whose branch to this sink it follows; None without.
    """

    number: int
    nodes: tuple[str, ...]
    connections: tuple[int, ...]
    share_gbps: float
    dialed_by_downstream: tuple[int, ...] = ()
    over_ceiling_usd_per_gb: float = 0.0
    tree: int | None = None

    def __post_init__(self) -> None:
        if not self.nodes or len(self.connections) != len(self.nodes) - 1:
            raise ConfigurationInvalid(
                f"route {self.number}: it needs one connection count per hop"
            )
        if len(set(self.nodes)) != len(self.nodes):
            raise ConfigurationInvalid(f"route {self.number}: a gateway appears twice")
        if any(not 1 <= count <= MAX_CONNECTIONS for count in self.connections):
            raise ConfigurationInvalid(
                f"route {self.number}: connections per hop must be 1 to {MAX_CONNECTIONS}"
            )
        if not 0 < self.share_gbps < math.inf:
            raise ConfigurationInvalid(f"route {self.number}: share_gbps must be above zero")


@dataclass(frozen=True, slots=True)
class Tree:
    """The hops of the routes that follow one tree; each hop carries a frame once for all of them.

    Args:
        number: on the wire, as that of a route.
        hops: each as a route of its own; the source's first.
        sinks: the gateways that write. A frame names those that it is for by a set of bits, in
            this order.
    """

    number: int
    hops: tuple[Route, ...]
    sinks: tuple[str, ...]

    @classmethod
    def of(cls, number: int, routes: Iterable[Route]) -> Tree:
        """Raises ConfigurationInvalid if the routes do not make a tree."""
        routes = tuple(routes)
        connections: Counter[tuple[str, str]] = Counter()
        backwards: set[tuple[str, str]] = set()
        for route in routes:
            for index, edge in enumerate(pairwise(route.nodes)):
                connections[edge] += route.connections[index]
                if index in route.dialed_by_downstream:
                    backwards.add(edge)
        heads = [head for _, head in connections]
        sinks = tuple(route.nodes[-1] for route in routes)
        if len({*heads, routes[0].nodes[0]}) <= len(heads) or len(set(sinks)) < len(sinks):
            raise ConfigurationInvalid(f"tree {number}: a gateway has two upstream gateways")
        if len(sinks) > MAX_SINKS:
            raise ConfigurationInvalid(f"tree {number}: it has more than {MAX_SINKS} sinks")
        hops = tuple(
            Route(
                number,
                edge,
                (min(MAX_CONNECTIONS, TREE_CONNECTIONS * count),),
                1.0,
                (0,) if edge in backwards else (),
            )
            for edge, count in connections.items()
        )
        return cls(number, hops, sinks)

    def bits(self, sinks: Iterable[str]) -> int:
        """The set of those sinks, as frames name it."""
        return sum(1 << self.sinks.index(node) for node in sinks)

    def bits_behind(self, node: str) -> int:
        """The set of the sinks that this gateway is, or leads to."""
        own = self.bits([node]) if node in self.sinks else 0
        heads = (hop.nodes[1] for hop in self.hops if hop.nodes[0] == node)
        return own + sum(map(self.bits_behind, heads))

    def hops_of(self, node: str) -> dict[str, Route]:
        """Neighbour of a gateway -> its hop."""
        return {hop.nodes[hop.nodes[0] == node]: hop for hop in self.hops if node in hop.nodes}


@dataclass(frozen=True, slots=True)
class Topology(Document, what="the topology"):
    """All routes of a fleet, and the addresses of its gateways.

    Args:
        data_addresses: node -> (host, port) of its data listener.
        control_addresses: node -> (host, port) of its control API.
    """

    routes: tuple[Route, ...]
    data_addresses: Mapping[str, tuple[str, int]]
    control_addresses: Mapping[str, tuple[str, int]]

    @property
    def trees(self) -> tuple[Tree, ...]:
        """Those that routes follow."""
        followed: dict[int, list[Route]] = {}
        for route in self.routes:
            if route.tree is not None:
                followed.setdefault(route.tree, []).append(route)
        return tuple(Tree.of(number, routes) for number, routes in followed.items())

    def to(self, sinks: Collection[str]) -> Topology:
        """The same with the routes to these sinks alone."""
        return replace(self, routes=tuple(one for one in self.routes if one.nodes[-1] in sinks))

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route.nodes[0] for route in self.routes))

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(route.nodes[-1] for route in self.routes))


@dataclass(frozen=True, slots=True)
class ProbeReport(Document, what="the report of a probe"):
    """What a route carried.

    Attributes:
        gbps: payload that arrived in the steady part, Gbit/s.
        bytes: that arrived in the steady part.
        seconds: of the steady part.
        connections: of the route's first hop.
        sent_bytes: payload of the whole probe, some of which may be on its way.
    """

    gbps: float
    bytes: int
    seconds: float
    connections: int
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class Group(Document, what="a group of transfers"):
    """Transfers of one source to several destinations, whose chunks may travel together.

    Args:
        key: names the group; hex, as a transfer key.
        members: the transfer keys.
        sealing_key: hex of 32 bytes for the chunks that they share; None: they do not encrypt.
    """

    key: str
    members: tuple[str, ...]
    sealing_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.sealing_key is not None:
            require_hex_of_32_bytes("sealing_key of a group", self.sealing_key)


@dataclass(frozen=True, slots=True)
class AttachOrder(Document, what="the order to attach a side"):
    """Gives one side of a transfer its store and its secrets; a gateway keeps them in memory.

    Args:
        store: of that side.
        credentials: None where the gateway's machine has an identity of its own.
        verify: how a sink checks what it has written.
        bytes_per_s: the highest rate at which a source sends; None for no limit.
        sealing_key: hex of 32 bytes, the same for both sides; None: they do not encrypt.
        tried_prefix: of the listing by which the gateway tries the store; None: it does not.
        group: of the transfer; None without.
    """

    epoch: int
    side: End
    store: StoreSpec
    credentials: Credentials | None = field(default=None, repr=False)
    verify: Verification = "stored"
    bytes_per_s: float | None = None
    sealing_key: str | None = field(default=None, repr=False)
    tried_prefix: str | None = ""
    group: Group | None = None

    def __post_init__(self) -> None:
        check(self)
        if self.sealing_key is not None:
            require_hex_of_32_bytes("sealing_key", self.sealing_key)


@dataclass(frozen=True, slots=True)
class HandedManifest:
    """A manifest for whose place gateways have no credentials, as a lead gets it.

    Args:
        place, kind: of the copies; see `manifest.document.Elsewhere`.
        files: name -> content in base64: the pointer and its indexes; empty where there are none.
        trouble: why they were not handed over; empty where they were.
    """

    place: str
    kind: str
    files: Mapping[str, str]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class TransferSpec(JobOptions, Document, what="the transfer specification"):
    """What to copy, for the lead, with its `JobOptions`; holds no credentials.

    Args:
        source_prefix, destination_prefix: key or prefix in the stores.
        filter: further filters; durations count from the begin of the first epoch.
        chunk_bytes: size of a chunk and of a part.
        whole_bytes: objects up to this size are sent whole, if the sinks have the memory; at
            least `chunk_bytes`.
        server_side_copy: the store may copy large objects itself; the library has found that the
            ends are in one region of one service, and that the credentials of the destination
            should be able to read the source.
        sets: headers and user metadata of the copies, in place of those of their sources.
        sinks: the gateways that write at the destination; empty for all sinks of the fleet.
        handed_manifest: the manifest of the destination, if it lies elsewhere.
    """

    source: StoreSpec
    destination: StoreSpec
    source_prefix: str
    destination_prefix: str
    chunk_bytes: int = 16 * MIB
    whole_bytes: int = 0
    filter: ObjectFilter = ALL_OBJECTS
    server_side_copy: bool = False
    sets: ObjectAttributes | None = None
    sinks: tuple[str, ...] = ()
    handed_manifest: HandedManifest | None = None

    @property
    def kept(self) -> KeptProperties:
        """Which class and tags the copies get."""
        return replace(kept_properties_of(self.source, self.destination), sets=self.sets)
