"""The faults of one run, as plain values that can be printed and replayed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Literal

from tests.simulation.buckets import WRONG, Kind
from tests.simulation.control import CallFault
from tests.simulation.meddling import FrameKind

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.config import Route

KIB: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class Kill:
    """kill -9 of a gateway, as numbered in the fleet; perhaps an empty one in its place."""

    at_s: float
    gateway: int
    restart_s: float | None = None


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM to a gateway, as its machine sends when it is wanted back."""

    at_s: float
    gateway: int


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGSTOP and SIGCONT of a gateway."""

    at_s: float
    gateway: int
    for_s: float


@dataclass(frozen=True, slots=True)
class KillClient:
    """kill -9 of the orchestrator; a new one takes up the job."""

    at_s: float
    again_s: float


@dataclass(frozen=True, slots=True)
class Cut:
    """No contact from one gateway to another, or both ways; hop as numbered in the fleet."""

    at_s: float
    hop: int
    for_s: float
    ways: Literal["there", "back", "both"]


@dataclass(frozen=True, slots=True)
class Reset:
    """All connections of a hop break."""

    at_s: float
    hop: int


@dataclass(frozen=True, slots=True)
class Slow:
    """A hop carries less."""

    at_s: float
    hop: int
    for_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Far:
    """A hop becomes long until the end: a delay each way, and a rate per connection."""

    at_s: float
    hop: int
    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Lapse:
    """The destination's own rule aborts all uploads that are open."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Damage:
    """A byte changes on one connection of a hop."""

    at_s: float
    hop: int
    offset: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """One connection of a hop breaks after so many bytes."""

    at_s: float
    hop: int
    after_bytes: int


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame is duplicated, swapped with the next, dropped or damaged."""

    at_s: float
    hop: int
    kind: FrameKind
    nth: int


@dataclass(frozen=True, slots=True)
class Call:
    """A control call goes wrong."""

    number: int
    kind: CallFault


@dataclass(frozen=True, slots=True)
class Store:
    """Requests to a store go wrong."""

    side: Literal["source", "destination"]
    method: str
    first: int
    count: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Storm:
    """A store refuses all requests for a while, and says when to ask again, or does not."""

    at_s: float
    side: Literal["source", "destination"]
    for_s: float
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A user overwrites or deletes an object of the source."""

    at_s: float
    object: int
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class Appear:
    """A user writes an object of that name to the destination, or deletes what is there."""

    at_s: float
    object: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """A user has the transfer cancelled."""

    at_s: float


Fault = (
    Kill
    | Terminate
    | Appear
    | Cancel
    | Far
    | Lapse
    | Stop
    | KillClient
    | Cut
    | Reset
    | Slow
    | Damage
    | Truncate
    | Frame
    | Call
    | Store
    | Storm
    | Change
)


def _route(number: int, *nodes: str, connections: int = 2) -> Route:
    return Route(number, nodes, (connections,) * (len(nodes) - 1), 1.0)


#: Fleets of two to six gateways.
SHAPES: Final[tuple[tuple[Route, ...], ...]] = (
    (_route(0, "a", "b"),),
    (_route(0, "a", "r", "b"), _route(1, "a", "b")),
    (_route(0, "a", "r", "b"), _route(1, "c", "r", "d")),
    (
        _route(0, "a", "b", connections=1),
        _route(1, "c", "b", connections=1),
        _route(2, "a", "r", "d", connections=1),
        _route(3, "c", "s", "b", connections=1),
    ),
)


#: One long path each, of so many connections; not for random schedules.
LONG_PATHS: Final = tuple((_route(0, "a", "b", connections=count),) for count in (1, 2, 4, 8))
ALL_SHAPES: Final = (*SHAPES, *LONG_PATHS)

#: What follows on the first run once all troubles are over: nothing; the same again on the
#: same fleet, by its handle where it has left one; the same after its fleet was taken down.
Then = Literal["nothing", "again", "again elsewhere"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run, and perhaps a second one that resumes it.

    Attributes:
        seed: decides what the faults leave open: pauses, latencies, contents.
        shape: number of the fleet in `ALL_SHAPES`; random schedules take those of `SHAPES`.
        sizes: bytes of the source's objects.
        conflict: the rule for objects that are there already.
        there: every n-th object is at the destination already: an older one, a newer one and
            an equal one in turn; 0 for none.
        trusts_checksum: whether the destination vouches for its checksums.
        verify: how the end is checked.
        announcing: every n-th object is published after all others; 0 for none.
        move: the sources go once the copies are verified.
        then: what comes after.
        source_vouches: whether the source gives checksums of its objects. Where it does not,
            wrong bytes that it sends look like any others, and it sends none.
        server_side: both ends are in one region, so that the store copies large objects itself
            if the source vouches.
    """

    seed: int
    shape: int
    sizes: tuple[int, ...]
    faults: tuple[Fault, ...] = ()
    conflict: str = "replace"
    there: int = 0
    trusts_checksum: bool = True
    verify: str = "stored"
    announcing: int = 0
    move: bool = False
    then: Then = "nothing"
    source_vouches: bool = True
    server_side: bool = False

    @property
    def routes(self) -> tuple[Route, ...]:
        return ALL_SHAPES[self.shape]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node for route in self.routes for node in route.nodes))

    @property
    def hops(self) -> tuple[tuple[str, str], ...]:
        pairs = (
            pair
            for route in self.routes
            for pair in zip(route.nodes, route.nodes[1:], strict=False)
        )
        return tuple(dict.fromkeys(pairs))

    def key_of(self, index: int) -> str:
        """Announcing objects stand between the others in the listing."""
        return f"k{index:02d}{ANNOUNCING if self.announces(index) else ''}"

    def announces(self, index: int) -> bool:
        return bool(self.announcing) and index % self.announcing == 0


#: What the keys of announcing objects end with.
ANNOUNCING: Final = ".last"


def body_of(seed: int, index: int, version: int, size: int) -> bytes:
    """What a user gave an object in that version."""
    return random.Random(f"{seed}/{index}/{version}").randbytes(size)


def attributes_of(seed: int, index: int, version: int) -> ObjectAttributes:
    """The metadata that a user gave it."""
    chance = random.Random(f"{seed}/{index}/{version}/attributes")
    if chance.random() < 0.3:
        return ObjectAttributes()
    return ObjectAttributes(
        content_type=chance.choice((None, "text/plain", "application/x-parquet")),
        cache_control=chance.choice((None, "no-store")),
        metadata=(("version", str(version)),),
    )


#: Sizes around the limits: nothing, a byte, a batch, a chunk and one byte either side.
CHUNK_BYTES: Final = 32 * KIB
SIZES: Final = (
    0,
    1,
    700,
    5 * KIB,
    CHUNK_BYTES - 1,
    CHUNK_BYTES,
    CHUNK_BYTES + 1,
    70 * KIB,
    2 * CHUNK_BYTES,
    150 * KIB,
    260 * KIB,
)

_AWAY: Final[tuple[Kind, ...]] = ("throttled", "unavailable", "slow")
STORE_FAULTS: Final[dict[str, tuple[Kind, ...]]] = {
    "check": _AWAY,
    "list": _AWAY,
    "head": _AWAY,
    "read": (*_AWAY, "truncated", "ends early", "wrong bytes", "denied"),
    "put": (*_AWAY, "lost answer", "late", "corrupt", "denied"),
    "create_upload": (*_AWAY, "lost answer", "denied"),
    "put_part": (*_AWAY, "lost answer", "late", "corrupt", "denied"),
    "copy_part": (*_AWAY, "lost answer", "late", "corrupt", "denied"),
    "complete_upload": (*_AWAY, "lost answer", "late", "denied"),
    "abort_upload": (*_AWAY, "lost answer"),
    "list_uploads": _AWAY,
    "list_parts": _AWAY,
    "delete": (*_AWAY, "lost answer"),
}
_WRITES: Final = ("put", "put_part", "complete_upload")
SOURCE_METHODS: Final = ("check", "list", "head", "read")
DESTINATION_METHODS: Final = (
    "check",
    "list",
    "read",
    "put",
    "create_upload",
    "put_part",
    "complete_upload",
    "abort_upload",
    "list_uploads",
    "list_parts",
    "delete",
)

CONFLICTS: Final = ("replace", "skip", "fail", "replace-if-newer", "replace-if-different")


def random_schedule(seed: int, *, most_faults: int = 4) -> Schedule:
    """The schedule of a seed."""
    rng = random.Random(seed)
    shape = rng.randrange(len(SHAPES))
    bare = Schedule(
        seed=seed,
        shape=shape,
        sizes=tuple(rng.choice(SIZES) for _ in range(rng.randint(3, 9))),
        conflict=rng.choice(("replace", *CONFLICTS)),
        there=rng.choice((0, 0, 1, 2)),
        trusts_checksum=rng.random() < 0.7,
        verify=rng.choice(("stored", "stored", "stored", "reread")),
        announcing=rng.choice((0, 0, 3, 4)),
        move=rng.random() < 0.15,
        then=rng.choice(("nothing", "again", "again elsewhere")),
        source_vouches=random.Random(f"{seed}/source").random() < 0.6,
        server_side=random.Random(f"{seed}/server side").random() < 0.25,
    )
    theme = rng.choice(_THEMES)
    faults = tuple(_random_fault(rng, bare, theme) for _ in range(rng.randint(0, most_faults)))
    if bare.server_side:
        faults = tuple(map(_of_copies, faults))
    return replace(bare, faults=_with_notice(seed, faults))


def _of_copies(fault: Fault) -> Fault:
    """The fault, of a part that the store copies in place of one that it gets."""
    if isinstance(fault, Store) and fault.method == "put_part":
        return replace(fault, method="copy_part")
    return fault


def _with_notice(seed: int, faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """In one run of three gateways are told to end before they are gone."""
    if random.Random(f"{seed}/notice").random() >= 1 / 3:
        return faults
    return tuple(
        Terminate(fault.at_s, fault.gateway) if isinstance(fault, Kill) else fault
        for fault in faults
    )


def _moment(rng: random.Random) -> float:
    return round(rng.choice((rng.uniform(0.05, 0.8), rng.uniform(0.05, 2.5))), 3)


#: What a run is mostly about; each is as likely as the others.
_THEMES: Final[tuple[tuple[type, ...], ...]] = (
    (Kill, Stop, KillClient, Call),
    (Stop, Stop, Cut, Slow, Kill),
    (Cut, Reset, Slow, Damage, Truncate, Frame),
    (Store,),
    (Kill, Stop, Store),
    (Change, Appear, Kill, Stop, Store),
    (Cancel, Kill, Stop, Slow, Store),
    (Kill, Stop, KillClient, Cut, Reset, Slow, Damage, Truncate, Frame, Call, Store, Change),
)


def _random_fault(rng: random.Random, schedule: Schedule, theme: tuple[type, ...]) -> Fault:
    # The first gateway leads, and what becomes of it matters most.
    gateway = rng.choice((0, rng.randrange(len(schedule.nodes))))
    hop = rng.randrange(len(schedule.hops))
    at_s = _moment(rng)
    for_s = rng.choice((0.5, 5.0, 40.0, 400.0))
    choices: tuple[Fault, ...] = (
        Kill(at_s, gateway, rng.choice((None, None, 0.5, 20.0))),
        Stop(at_s, gateway, for_s),
        KillClient(at_s, rng.choice((0.5, 10.0))),
        Cut(at_s, hop, for_s, rng.choice(("there", "back", "both"))),
        Reset(at_s, hop),
        Slow(at_s, hop, for_s, rng.choice((1e3, 2e4, 2e5))),
        Damage(at_s, hop, rng.randrange(60 * KIB)),
        Truncate(at_s, hop, rng.randrange(60 * KIB)),
        Frame(at_s, hop, rng.choice(("duplicate", "swap", "drop", "flip")), rng.randint(1, 4)),
        Call(rng.randint(1, 60), rng.choice(("lost request", "lost answer", "slow"))),
        _random_store_fault(rng),
        Change(at_s, _a_large_one(rng, schedule), rng.random() < 0.3),
        Appear(at_s, rng.randrange(len(schedule.sizes)), rng.random() < 0.2),
        Cancel(at_s),
    )
    wanted = rng.choice(theme)
    return next(fault for fault in choices if isinstance(fault, wanted))


def _a_large_one(rng: random.Random, schedule: Schedule) -> int:
    """An object that takes long, most of the time."""
    indexes = range(len(schedule.sizes))
    return max(rng.choices(indexes, k=3), key=lambda index: schedule.sizes[index])


def _random_store_fault(rng: random.Random) -> Store:
    side: Literal["source", "destination"] = rng.choice(("source", "destination"))
    method = rng.choice(SOURCE_METHODS if side == "source" else (*DESTINATION_METHODS, *_WRITES))
    # Of what a store may do, to spoil what it stores is the worst.
    spoils: tuple[Kind, ...] = ("corrupt",) * 3 if method in ("put", "put_part") else ()
    kinds = tuple(kind for kind in STORE_FAULTS[method] if side == "source" or kind != WRONG)
    kind = rng.choice((*kinds, *spoils))
    return Store(side, method, rng.randint(1, 8), rng.choice((1, 1, 2, 30)), kind)
