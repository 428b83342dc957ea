"""An attacker drops, repeats, delays, moves and forges messages: never data, never a hang."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.wire_attacks import (
    HANDSHAKE,
    ORDER,
    POLYNOMIAL,
    TURNS,
    On,
    Turns,
    altering,
    flipped,
    in_mid_transfer,
    polynomial_added,
    silent_from_now,
    stall_deadline_of,
)
from tests.gateway.wire_lab import PLACES, all_at_once, run_attacked
from tests.gateway.wire_layout import FIELDS
from tests.gateway.wire_proxy import WireProxy

from skyplane_gateway.protocol.messages import MessageType

pytestmark = pytest.mark.usefixtures("small_frames")

#: An attack on two messages can exchange them.
TURNS_HERE: dict[str, Turns] = {"first two": lambda number: number < 2, "every": TURNS["every"]}
SHORT = {
    (MessageType.DATA, "upper", "first two"),
    (MessageType.DATA, "relay", "first two"),
    (MessageType.DATA, "relay", "every"),
    (MessageType.RECEIPT, "lower", "first two"),
    (MessageType.RECEIPT, "relay", "first two"),
    (MessageType.RECEIPT, "relay", "every"),
    *((kind, "lower", "first two") for kind in HANDSHAKE),
}
#: A neighbour that ends in good order after its HELLO is not dialed again.
ENDS_A_PATH = "behind a goodbye DONE"
#: The reason of a forged GOODBYE makes a difference only while messages can still come.
ONCE = {ENDS_A_PATH, *(name for name in ORDER if not name.startswith("behind a goodbye"))}


def cases() -> list[Any]:
    return [
        pytest.param(
            *case,
            marks=() if case in SHORT else pytest.mark.long,
            id="-".join((case[0].name, *case[1:])),
        )
        for case in (
            (kind, place, turns)
            for kind in (*HANDSHAKE, MessageType.DATA, MessageType.RECEIPT)
            for place in PLACES
            for turns in TURNS_HERE
        )
        if not (case[0] in HANDSHAKE and case[1] == "relay")
    ]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "place", "turns"), cases())
async def test_messages_are_moved_and_forged(
    fleet_of: Any, kit: Any, kind: MessageType, place: str, turns: str
) -> None:
    where = PLACES[place]

    async def run(name: str) -> None:
        ends_path = name == ENDS_A_PATH and kind not in HANDSHAKE
        may_fail = ends_path or turns == "every"
        attack = On(ORDER[name](), where.hop, TURNS_HERE[turns], kind)
        wanted = in_mid_transfer(attack, kind, where.hop)
        stall_deadline_s = stall_deadline_of(kind) if may_fail else 20.0
        outcome = await run_attacked(
            fleet_of, kit, wanted, place=where, stall_deadline_s=stall_deadline_s
        )
        assert attack.times > 0
        assert may_fail or outcome.state == "succeeded"

    names = [name for name in ORDER if name in ONCE or (kind not in HANDSHAKE and turns != "every")]
    await all_at_once((name, run(name)) for name in names)


@pytest.mark.parametrize("place", ["upper", "lower", "direct"])
async def test_a_connection_that_takes_everything_and_brings_nothing(
    fleet_of: Any, kit: Any, place: str
) -> None:
    attack = silent_from_now()
    await run_attacked(fleet_of, kit, attack, place=PLACES[place], stall_deadline_s=0.3)


async def test_without_encryption_the_same_attack_changes_objects(fleet_of: Any, kit: Any) -> None:
    """The attack is real: this is why a fleet encrypts."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"key": bytes(1000)})
    attack = On(polynomial_added, ("r", "b"), TURNS["every"], MessageType.DATA)
    proxy = WireProxy(attack)
    async with fleet_of(kit.route(0, "a", "r", "b"), wire=proxy) as fleet:
        status = await fleet.run(kit.copy_spec(source, destination))
        assert status["state"] == "succeeded"
    assert kit.content(destination) == {"key": bytes(995) + POLYNOMIAL.to_bytes(5, "little")}
    assert b"key" in proxy.seen


@pytest.mark.parametrize("kind", [MessageType.DATA, MessageType.RECEIPT])
async def test_a_path_that_alters_messages_is_left_for_an_honest_one(
    fleet_of: Any, kit: Any, kind: MessageType
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"key-{number}": bytes([number]) * 4096 for number in range(24)}
    kit.fill(source, objects)
    tag = next(field for field in FIELDS if str(field) == f"{kind.name}-tag")
    attack = On(altering(tag, flipped), ("r", "b"), TURNS["every"], kind)
    routes = kit.route(0, "a", "r", "b"), kit.route(1, "a", "s", "b")
    deadlines = {"ack_deadline_s": 0.5, "stall_deadline_s": 20.0}
    async with fleet_of(*routes, wire=WireProxy(attack), **deadlines) as fleet:
        spec = kit.copy_spec(source, destination, chunk_bytes=4096)
        status = await fleet.run(spec, is_encrypted=True)
    assert (status["error"], status["copied"]) == (None, 24)
    assert attack.times > 0
    assert kit.content(destination) == objects
