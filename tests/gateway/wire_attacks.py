"""Attacks on messages; each is a function of one message on its way."""

from __future__ import annotations

from collections.abc import Callable

from tests.gateway.wire_layout import Field, changed
from tests.gateway.wire_proxy import Attack, Hop, Message

from skyplane_gateway.protocol.messages import MessageType

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
    """

    def __init__(self, attack: Attack, hop: Hop, turns: Turns, *kinds: MessageType) -> None:
        self._attack = attack
        self._hop = hop
        self._turns = turns
        self._kinds = kinds
        self.times = 0

    def __call__(self, message: Message) -> None:
        is_meant = message.kind in self._kinds and message.pipe.hop == self._hop
        if is_meant and self._turns(message.number):
            self.times += 1
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
