"""Attacks on messages; each is a function of one message on its way."""

from __future__ import annotations

from collections.abc import Callable

from tests.gateway.wire_layout import Field, changed
from tests.gateway.wire_proxy import Attack, Hop, Message

from skyplane_gateway.protocol.messages import MessageType

Turns = Callable[[int], bool]


def first(number: int) -> bool:
    return number == 0


def later(number: int) -> bool:
    return number == 3


def every(number: int) -> bool:
    return True


def on(
    kind: MessageType, attack: Attack, *, hop: Hop | None = None, turns: Turns = first
) -> Attack:
    """Attack the messages of one type, at their turns; forward all others."""

    def take(message: Message) -> None:
        is_meant = message.kind is kind and hop in (None, message.pipe.hop)
        if is_meant and turns(message.number):
            attack(message)
        else:
            message.forward()

    return take


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
