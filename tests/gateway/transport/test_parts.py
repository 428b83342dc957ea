"""Incarnations, log throttle, write timeout and socket options."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest
from hypothesis import given, strategies as st
from tests.gateway.transport.lab import on_jumping_loop
from tests.manual_clock import ManualClock

from skyplane_gateway.transport.incarnation import Incarnation, Incarnations
from skyplane_gateway.transport.link import set_options
from skyplane_gateway.transport.log_throttle import LogThrottle
from skyplane_gateway.transport.write_timeout import WriteTimeout


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**24 - 1), st.randoms(use_true_random=False))
def test_a_nonce_carries_its_incarnation(started: int, count: int, rng: random.Random) -> None:
    made = Incarnation(started, count)
    nonce = made.nonce(rng)
    assert len(nonce) == 16
    assert Incarnation.of(nonce) == made
    assert made.nonce(random.Random(1)) != made.nonce(random.Random(2))


def test_incarnations_rise_within_a_process_and_from_one_to_the_next() -> None:
    first, second = (Incarnations(ManualClock(at_s).clock) for at_s in (1000.0, 1000.001))
    rising = [first.next(), first.next(), second.next(), second.next()]
    assert rising == sorted(set(rising))


@given(st.lists(st.floats(0.001, 30.0), min_size=1, max_size=300))
def test_a_repeated_problem_is_logged_seldom_and_every_occurrence_is_counted(
    gaps_s: list[float],
) -> None:
    throttle, now_s, suffixes = LogThrottle(), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        suffixes.append(throttle.suffix(now_s))
    lines = [line for line in suffixes if line is not None]
    counted = sum(int(line.split()[1]) for line in lines if line)
    last = max(index for index, line in enumerate(suffixes) if line is not None)
    assert suffixes[0] == ""
    assert counted == last + 1 - len(lines)
    # Silences of 5, 10, 20 ... seconds: n of them take 5 * (2^n - 1), up to the longest.
    assert len(lines) <= 9 + now_s / 600


def test_a_problem_after_ten_quiet_minutes_is_logged_at_once() -> None:
    throttle = LogThrottle()
    assert [throttle.suffix(now_s) for now_s in (0.0, 1.0, 2.0, 700.0)] == [
        "",
        None,
        None,
        " (and 2 times since the last line)",
    ]


class Pipe:
    """What a transport knows of its buffer."""

    def __init__(self) -> None:
        self.sent = self.taken = 0
        self.stalls: list[float] = []
        self.watch = WriteTimeout(
            20.0, lambda: self.sent - self.taken, lambda: self.sent, self._stalled
        )

    def _stalled(self) -> None:
        self.stalls.append(asyncio.get_running_loop().time())


@on_jumping_loop
async def test_the_write_timeout_fires_once_when_no_byte_leaves() -> None:
    loop = asyncio.get_running_loop()
    pipe, began_s = Pipe(), loop.time()
    for _ in range(10):
        pipe.sent += 100  # More and more waits, which is no progress.
        pipe.watch.written()
        await asyncio.sleep(7)
    (stalled_s,) = pipe.stalls
    assert 20 <= stalled_s - began_s <= 26


@pytest.mark.parametrize("taken_bytes", [1, 100])
@on_jumping_loop
async def test_the_write_timeout_does_not_fire_while_bytes_leave_slowly(taken_bytes: int) -> None:
    pipe = Pipe()
    for _ in range(20):
        pipe.sent += 100
        pipe.watch.written()
        await asyncio.sleep(11)
        pipe.taken += taken_bytes
    assert pipe.stalls == []


@on_jumping_loop
async def test_a_stopped_write_timeout_does_not_fire() -> None:
    pipe = Pipe()
    pipe.sent = 1
    pipe.watch.written()
    pipe.watch.stop()
    await asyncio.sleep(100)
    assert pipe.stalls == []


def test_a_socket_that_is_gone_has_no_options() -> None:
    with socket.socket() as handle:
        handle.close()
        set_options(handle, 45.0)


def test_a_socket_has_keepalive_and_a_user_timeout() -> None:
    with socket.socket() as handle:
        set_options(handle, 45.0)
        assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000
