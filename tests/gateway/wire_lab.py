"""Runs a transfer under attack, and checks what holds whatever an attacker does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.gateway.wire_proxy import Attack, Message, WireProxy, honest

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

RELAYED = ("a", "r", "b")
DIRECT = ("a", "b")


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
    kit: Any,
    attack: Attack,
    *,
    nodes: tuple[str, ...] = RELAYED,
    relay: str = "",
    connections: int = 2,
    is_attacked_at_start: bool = False,
    begin: Callable[[WireProxy], None] = lambda proxy: None,
    is_encrypted: bool = True,
    **deadlines: float,
) -> Outcome:
    """Copy `OBJECTS` under attack, and check the outcome.

    Args:
        relay: as in `WireProxy`.
        is_attacked_at_start: attack while the gateways connect as well.
        begin: called once all gateways are connected.
        deadlines: settings of the gateways; by default an attack on some messages succeeds.
    """
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, OBJECTS)
    settings = {"ack_deadline_s": 0.15, "stall_deadline_s": 20.0, **deadlines}
    route = kit.route(0, *nodes, connections=connections)
    proxy = WireProxy(attack if is_attacked_at_start else honest, relay)
    held_bytes: list[int] = []
    async with (
        asyncio.timeout(GUARD_S),
        fleet_of(route, wire=proxy, assembly_mib=CAPACITY_MIB, **settings) as fleet,
    ):
        sink = fleet.service(nodes[-1]).sink

        def watched(message: Message) -> None:
            attack(message)
            held_bytes.append(sink.held_bytes)

        proxy.attack = watched
        begin(proxy)
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK_BYTES)
        status = await fleet.run(spec, is_encrypted=is_encrypted)
        secrets = secrets_of(fleet, status["transfer_key"])
    assert max(held_bytes, default=0) <= CAPACITY_MIB * MIB
    outcome = Outcome(status, kit.content(destination), proxy)
    if is_encrypted:
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
