"""The small parts of links, each alone."""

from __future__ import annotations

import asyncio
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.transport.lab import run_jumping
from tests.manual_clock import ManualClock

from skyplane_gateway.transport.incarnation import Incarnation, Incarnations
from skyplane_gateway.transport.log_throttle import LogThrottle
from skyplane_gateway.transport.socket_options import tune
from skyplane_gateway.transport.write_timeout import WriteWatch


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**24 - 1), st.binary(min_size=7, max_size=7))
def test_a_nonce_says_its_incarnation(started: int, count: int, rest: bytes) -> None:
    made = Incarnation(started, count)
    nonce = made.nonce(lambda size: rest[:size])
    assert len(nonce) == 16
    assert nonce.endswith(rest)
    assert Incarnation.of(nonce) == made


def test_incarnations_rise_within_a_process_and_from_one_to_the_next() -> None:
    first, second = (Incarnations(ManualClock(at_s).clock) for at_s in (1000.0, 1000.001))
    rising = [first.next(), first.next(), second.next(), second.next()]
    assert rising == sorted(set(rising))


@given(st.lists(st.floats(0.001, 30.0), min_size=1, max_size=300))
def test_a_trouble_is_spoken_of_seldom_but_none_is_uncounted(gaps_s: list[float]) -> None:
    seldom, now_s, said = LogThrottle(), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        said.append(seldom.ask(now_s))
    lines = [line for line in said if line is not None]
    counted = sum(int(line.split()[1]) for line in lines if line)
    last = max(index for index, line in enumerate(said) if line is not None)
    assert said[0] == ""
    assert counted == last + 1 - len(lines)
    # Silences of 5, 10, 20 ... seconds: n of them take 5 * (2^n - 1), up to the longest.
    assert len(lines) <= 9 + now_s / 600


def test_a_trouble_after_a_long_rest_is_spoken_of_at_once() -> None:
    seldom = LogThrottle()
    assert [seldom.ask(now_s) for now_s in (0.0, 1.0, 2.0, 700.0)] == [
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
        self.watch = WriteWatch(
            20.0, lambda: self.sent - self.taken, lambda: self.sent, self._stalled
        )

    def _stalled(self) -> None:
        self.stalls.append(asyncio.get_running_loop().time())


def test_a_pipe_of_which_nothing_leaves_is_told_of_once() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        pipe, began_s = Pipe(), loop.time()
        for _ in range(10):
            pipe.sent += 100  # More and more waits, which is no progress.
            pipe.watch.look()
            await asyncio.sleep(7)
        (stalled_s,) = pipe.stalls
        assert 20 <= stalled_s - began_s <= 26

    run_jumping(scenario())


@pytest.mark.parametrize("taken_bytes", [1, 100])
def test_a_pipe_that_moves_however_slowly_is_not(taken_bytes: int) -> None:
    async def scenario() -> None:
        pipe = Pipe()
        for _ in range(20):
            pipe.sent += 100
            pipe.watch.look()
            await asyncio.sleep(11)
            pipe.taken += taken_bytes
        assert pipe.stalls == []

    run_jumping(scenario())


def test_a_watch_that_was_stopped_says_nothing() -> None:
    async def scenario() -> None:
        pipe = Pipe()
        pipe.sent = 1
        pipe.watch.look()
        pipe.watch.stop()
        await asyncio.sleep(100)
        assert pipe.stalls == []

    run_jumping(scenario())


def test_a_socket_notices_a_peer_that_has_vanished() -> None:
    with socket.socket() as handle:
        tune(handle, 45.0)
        assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 45_000
