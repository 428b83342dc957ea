"""Runs a transfer under attack, and checks what holds whatever an attacker does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from tests.gateway.service.in_process_fleet import buckets, content, copy_spec, route
from tests.gateway.wire_proxy import Attack, Hop, Message, WireProxy, honest

from skyplane_gateway.config import MIB

CHUNK_BYTES = 4096
#: The last guard of a run, far beyond all its deadlines.
GUARD_S = 60.0
CAPACITY_MIB = 1

_chooser = random.Random(5)
#: Empty, small, one chunk, several parts.
OBJECTS = {
    f"secret-key-{number}": _chooser.randbytes(size)
    for number, size in enumerate([0, 1, 1000, CHUNK_BYTES, 2 * CHUNK_BYTES + 1])
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the attacker stands.

    Attributes:
        nodes: the route.
        hop: whose connections it attacks.
        relay: the gateway that it has replaced; empty without.
    """

    nodes: tuple[str, ...]
    hop: Hop
    relay: str = ""


#: Before a relay, behind it, on a direct path, and in a relay's place with its link keys.
PLACES = {
    "upper": Place(("a", "r", "b"), ("a", "r")),
    "lower": Place(("a", "r", "b"), ("r", "b")),
    "direct": Place(("a", "b"), ("a", "b")),
    "relay": Place(("a", "r", "b"), ("a", "b"), "r"),
}
#: Runs of one test at the same time: most of their time is waiting.
_AT_ONCE = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a transfer under attack came to."""

    status: dict[str, Any]
    content: dict[str, bytes]
    proxy: WireProxy

    @property
    def state(self) -> str:
        return str(self.status["state"])


async def run_attacked(
    fleet_of: Any,
    attack: Attack,
    *,
    place: Place = PLACES["lower"],
    stall_deadline_s: float = 20.0,
) -> Outcome:
    """Copy `OBJECTS` under attack, and check the outcome.

    Args:
        stall_deadline_s: by default so long that a transfer survives an attack on some messages.
    """
    source, destination = buckets(OBJECTS)
    deadlines = {"ack_deadline_s": 0.15, "stall_deadline_s": stall_deadline_s}
    path, proxy = route(0, *place.nodes), WireProxy(honest, place.relay)
    held_bytes: list[int] = []
    async with (
        asyncio.timeout(GUARD_S),
        fleet_of(path, wire=proxy, assembly_mib=CAPACITY_MIB, **deadlines) as fleet,
    ):
        sink = fleet.service("b").sink

        def watched(message: Message) -> None:
            attack(message)
            held_bytes.append(sink.held_bytes)

        proxy.attack = watched
        spec = copy_spec(source, destination, chunk_bytes=CHUNK_BYTES)
        status = await fleet.run(spec, is_encrypted=True)
        secrets = secrets_of(fleet, status["transfer_key"])
    assert max(held_bytes, default=0) <= CAPACITY_MIB * MIB
    outcome = Outcome(status, content(destination), proxy)
    check(outcome, secrets)
    return outcome


def check(outcome: Outcome, secrets: dict[str, bytes]) -> None:
    """A success is complete, a failure has altered nothing, and nothing was read."""
    assert outcome.state in ("succeeded", "failed")
    if outcome.state == "succeeded":
        assert outcome.content == OBJECTS
    assert outcome.content.items() <= OBJECTS.items()
    leaked = [name for name, secret in secrets.items() if secret in outcome.proxy.seen]
    assert leaked == []


def secrets_of(fleet: Any, transfer: str) -> dict[str, bytes]:
    """Name -> bytes that no attacker on the wire may see."""
    keys = {"key of an object": b"secret-key-", "sealing key": fleet.sealing_key(transfer)}
    bodies = {key: body[:64] for key, body in OBJECTS.items() if len(body) >= 64}
    links = {
        f"link key {one} {other}": fleet.authority.hello_key(one, other)
        for one in fleet.nodes
        for other in fleet.nodes
        if one < other
    }
    return {**keys, **bodies, **links}


async def all_at_once(runs: Iterable[tuple[str, Coroutine[Any, Any, None]]]) -> None:
    """Run side by side; an error names its run."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def named(name: str, run: Coroutine[Any, Any, None]) -> None:
        async with slots:
            try:
                await run
            except BaseException as error:
                error.add_note(f"while attacking {name}")
                raise

    async with asyncio.TaskGroup() as group:
        for name, run in runs:
            group.create_task(named(name, run))
