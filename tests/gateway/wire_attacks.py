"""Attacks on messages; each is a function of one message on its way."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from tests.gateway.wire_layout import FIELDS, Field, changed
from tests.gateway.wire_proxy import Attack, Hop, Message, ProxiedConnection

from skyplane_gateway.protocol.messages import PREFIX_BYTES, MessageType, pack_goodbye
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.protocol.sealing import PROLOGUE_BYTES, TAG_BYTES

HANDSHAKE = (MessageType.HELLO, MessageType.CHALLENGE, MessageType.PROOF)

#: Whether to attack the message of that number, counted from 0 by type.
Turns = Callable[[int], bool]


def first(number: int) -> bool:
    return number == 0


TURNS: dict[str, Turns] = {
    "first": first,
    "second": lambda number: number == 1,
    "every": lambda number: True,
}


class On:
    """Attacks the messages of some types at their turns on one hop, and forwards all others.

    Attributes:
        times: how often it has attacked.
        connections: whose messages it has attacked.
    """

    def __init__(self, attack: Attack, hop: Hop, turns: Turns, *kinds: MessageType) -> None:
        self._attack = attack
        self._hop = hop
        self._turns = turns
        self._kinds = kinds
        self.times = 0
        self.connections: set[ProxiedConnection] = set()

    def __call__(self, message: Message) -> None:
        is_meant = message.kind in self._kinds and message.pipe.hop == self._hop
        if is_meant and self._turns(message.number):
            self.times += 1
            self.connections.add(message.pipe.connection)
            self._attack(message)
        else:
            message.forward()


def flipped(value: bytes) -> bytes:
    """The lowest bit of the last byte differs."""
    return value[:-1] + bytes([value[-1] ^ 1])


def raised(value: bytes) -> bytes:
    """The highest value; the lowest where it is that already."""
    highest = b"\xff" * len(value)
    return highest if value != highest else bytes(len(value))


def altering(field: Field, change: Callable[[bytes], bytes]) -> Attack:
    def attack(message: Message) -> None:
        altered = changed(message.data, field, change)
        assert altered != message.data
        message.pipe.send(altered)

    return attack


def stall_deadline_of(kind: MessageType) -> float:
    """Seconds after which a transfer may fail whose messages of that type are all attacked."""
    # A connection is dialed again before a handshake is attacked.
    return 2.5 if kind in HANDSHAKE else 0.3


def provoked(attack: Attack, provocation: Attack, place_hop: Hop) -> Attack:
    """`provocation` of the first frame on the hop; then `attack`, and messages count from 0."""
    is_provoked = False

    def take(message: Message) -> None:
        nonlocal is_provoked
        is_frame = message.kind is MessageType.DATA and message.pipe.hop == place_hop
        if is_provoked:
            attack(message)
        elif is_frame:
            is_provoked = True
            message.pipe.proxy.counts.clear()
            provocation(message)
        else:
            message.forward()

    return take


def cut(message: Message) -> None:
    """Break the connection that it came by."""
    message.pipe.connection.cut()


def in_mid_transfer(attack: Attack, kind: MessageType, hop: Hop) -> Attack:
    """Cause messages of that type, if they do not come by themselves."""
    if kind in HANDSHAKE:
        return provoked(attack, cut, hop)
    if kind is MessageType.GOODBYE:
        # A gateway says it to a neighbour that breaks the protocol.
        fleet = next(field for field in FIELDS if str(field) == "DATA-fleet")
        return provoked(attack, altering(fleet, flipped), hop)
    return attack


# -- attacks on the order and on the connections


def withheld(message: Message) -> None:
    """Send nothing."""


def repeated(message: Message) -> None:
    for _ in range(3):
        message.forward()


def reflected(message: Message) -> None:
    """Send it back to its sender."""
    message.pipe.back.send(message.data)


def on_another_connection(message: Message) -> None:
    for pipe in message.pipe.others[:1]:
        pipe.send(message.data)


def on_every_connection(message: Message) -> None:
    for pipe in (message.pipe, *message.pipe.others):
        pipe.send(message.data)


def in_bytes(message: Message) -> None:
    """Send each byte alone; nothing is altered."""
    for place in range(len(message.data)):
        message.pipe.send(message.data[place : place + 1])


def cut_short(message: Message) -> None:
    """Omit the last byte, so that the next message seems to begin too early."""
    message.pipe.send(message.data[:-1])


def half_and_end(message: Message) -> None:
    """Send half of it and close this direction."""
    message.pipe.send(message.data[: len(message.data) // 2])
    message.pipe.end()


def half_and_cut(message: Message) -> None:
    message.pipe.send(message.data[: len(message.data) // 2])
    message.pipe.connection.cut()


def before_end(message: Message) -> None:
    """Close this direction after it."""
    message.forward()
    message.pipe.end()


def behind_noise(message: Message) -> None:
    message.pipe.send(os.urandom(64))
    message.forward()


def held_back() -> Attack:
    """Hold a message until the next attack, and send it after that one, by its connection."""
    held: list[Message] = []

    def attack(message: Message) -> None:
        late, held[:] = held[:], [] if held else [message]
        if late:
            message.forward()
            late[0].forward()

    return attack


def exchanged() -> Attack:
    """As `held_back`, and each of the two goes by the connection of the other."""
    held: list[Message] = []

    def attack(message: Message) -> None:
        late, held[:] = held[:], [] if held else [message]
        if late:
            late[0].pipe.send(message.data)
            message.pipe.send(late[0].data)

    return attack


def with_the_body_of_an_earlier_one() -> Attack:
    """Under its own outer header, with a length that fits."""
    bodies: list[bytes] = []

    def attack(message: Message) -> None:
        bodies.append(message.body)
        length = len(message.head) - PREFIX_BYTES + len(bodies[0])
        head = message.head[:4] + length.to_bytes(4, "big") + message.head[PREFIX_BYTES:]
        message.pipe.send(head + bodies[0])

    return attack


def after_an_earlier_one() -> Attack:
    """Send the first message again before each later one."""
    earlier: list[bytes] = []

    def attack(message: Message) -> None:
        earlier.append(message.data)
        message.pipe.send(earlier[0])
        message.forward()

    return attack


def after_a_forged(forged: bytes) -> Attack:
    """Send bytes of the attacker's own before it."""

    def attack(message: Message) -> None:
        message.pipe.send(forged)
        message.forward()

    return attack


def behind_goodbye(reason: GoodbyeReason) -> Attack:
    return after_a_forged(pack_goodbye(reason, "forged"))


def silent_from_now() -> Attack:
    """Take everything that its connection brings, and pass nothing on."""
    silenced: set[ProxiedConnection] = set()

    def attack(message: Message) -> None:
        if not silenced:
            silenced.add(message.pipe.connection)
        if message.pipe.connection not in silenced:
            message.forward()

    return attack


def in_plain_text(message: Message) -> None:
    """As suite 0: an attacker can make such a message itself."""
    head = len(message.head)
    body = message.data[head + PROLOGUE_BYTES : -TAG_BYTES]
    message.pipe.send(message.head + bytes(PROLOGUE_BYTES) + body + bytes(TAG_BYTES))


#: The polynomial of CRC32C with its highest term, in the order of bits on the wire.
POLYNOMIAL = 0x1_05EC_76F1


def polynomial_added(message: Message) -> None:
    """Add the polynomial of CRC32C to the payload: in plain text no checksum changes."""
    data = bytearray(message.data)
    for place, byte in enumerate(POLYNOMIAL.to_bytes(5, "little"), start=-TAG_BYTES - 5):
        data[place] ^= byte
    message.pipe.send(bytes(data))


#: Attacks on frames and receipts, one at a time or on all.
ORDER: dict[str, Callable[[], Attack]] = {
    "withheld": lambda: withheld,
    "repeated": lambda: repeated,
    "reflected": lambda: reflected,
    "on another connection": lambda: on_another_connection,
    "on every connection": lambda: on_every_connection,
    "in bytes": lambda: in_bytes,
    "cut short": lambda: cut_short,
    "half and end": lambda: half_and_end,
    "half and cut": lambda: half_and_cut,
    "before the end": lambda: before_end,
    "behind noise": lambda: behind_noise,
    "held back": held_back,
    "exchanged": exchanged,
    "body of an earlier one": with_the_body_of_an_earlier_one,
    "after an earlier one": after_an_earlier_one,
    "in plain text": lambda: in_plain_text,
    "polynomial": lambda: polynomial_added,
    **{
        f"behind a goodbye {reason.name}": partial(behind_goodbye, reason)
        for reason in GoodbyeReason
    },
}
