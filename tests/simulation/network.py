"""The network between the hosts of a world: connections in memory, with weather.

TCP as a program sees it: bytes arrive in order or the connection breaks; a reader that
stops lets the sender's buffer fill. What the network may do beyond being slow is to
lose contact (bytes wait, as under retransmission), to reset, and, for a damaged machine
on the way, to change bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.transport import Pipe, SimTransport
from tests.simulation.world import Process, World

#: A system gives up to connect after about two minutes.
CONNECT_TIMEOUT_S: Final = 130.0

#: What one connection carries when nothing is wrong.
USUAL_BYTES_PER_S: Final = 2e5

Address = tuple[str, int]
Factory = Callable[[], asyncio.BaseProtocol]


@dataclass(slots=True)
class Weather:
    """How one direction between two hosts is.

    Attributes:
        is_cut: nothing arrives; what was sent waits.
        bytes_per_s: what one connection carries.
    """

    latency_s: float = 0.002
    bytes_per_s: float = USUAL_BYTES_PER_S
    is_cut: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Listener:
    process: Process
    factory: Factory


class Network:
    """All connections of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.network = self
        self._listeners: dict[Address, _Listener] = {}
        self._weather: dict[tuple[str, str], Weather] = {}
        self._ports = 1000
        #: Both pipes of every connection that is open.
        self.pipes: list[Pipe] = []

    # -- the weather

    def weather(self, origin: str, target: str) -> Weather:
        return self._weather.setdefault((origin, target), Weather())

    def cut(self, origin: str, target: str) -> None:
        """Nothing arrives any more in this direction."""
        self.weather(origin, target).is_cut = True

    def heal(self, origin: str, target: str) -> None:
        """What waited arrives."""
        weather = self.weather(origin, target)
        weather.is_cut = False
        waiting, weather.waiting = weather.waiting, []
        for call in waiting:
            self.world.after(weather.latency_s, call)

    def heal_all(self) -> None:
        """The end of all troubles."""
        for pair, weather in tuple(self._weather.items()):
            if weather.is_cut:
                self.heal(*pair)
            weather.bytes_per_s = USUAL_BYTES_PER_S

    def reset(self, origin: str, target: str) -> int:
        """Break every connection between two hosts; how many there were."""
        broken = [pipe for pipe in self.pipes if pipe.hosts == (origin, target)]
        for pipe in broken:
            pipe.reset("Connection reset by peer")
        return len(broken)

    def passing(self, origin: str, target: str) -> list[Pipe]:
        """What flows now from one host to another."""
        return [pipe for pipe in self.pipes if pipe.hosts == (origin, target)]

    def troubled(self) -> list[Pipe]:
        """What a damaged machine changes, and what is full of a slow time's bytes."""
        return [pipe for pipe in self.pipes if pipe.is_meddled_with or pipe.is_clogged]

    # -- connections

    def free_port(self) -> int:
        self._ports += 1
        return self._ports

    def listen(self, process: Process, factory: Factory, address: Address) -> None:
        """Accept connections until the process dies."""
        self._listeners[address] = _Listener(process, factory)
        process.on_death.append(lambda: self._died(process))

    def unlisten(self, process: Process) -> None:
        """Accept no more connections for a process."""
        for address, listener in tuple(self._listeners.items()):
            if listener.process is process:
                del self._listeners[address]

    def _died(self, process: Process) -> None:
        self.unlisten(process)
        for pipe in tuple(self.pipes):
            if pipe.origin.process is process:
                pipe.reset("Connection reset by peer")

    async def connect(
        self, process: Process, factory: Factory, address: Address
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """What `create_connection` does.

        Raises:
            OSError: nobody listens there, or the way is cut for too long.
        """
        there, back = (
            self.weather(process.host, address[0]),
            self.weather(address[0], process.host),
        )
        deadline = self.world.now + CONNECT_TIMEOUT_S
        while there.is_cut or back.is_cut:
            if self.world.now >= deadline:
                raise TimeoutError(110, "Connection timed out")
            await asyncio.sleep(1.0)
        await asyncio.sleep(there.latency_s + back.latency_s)
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(111, "Connection refused")
        return self._open(process, factory, listener)

    def _open(
        self, process: Process, factory: Factory, listener: _Listener
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        near = SimTransport(process, factory())
        far = SimTransport(listener.process, listener.factory())
        for origin, target in ((near, far), (far, near)):
            weather = self.weather(origin.process.host, target.process.host)
            pipe = Pipe(self.world, weather, origin, target, self._forget)
            origin.pipe = pipe
            self.pipes.append(pipe)
        for transport in (far, near):
            transport.process.loop.call_soon(transport.begin)
        return near, near.get_protocol()

    def _forget(self, pipe: Pipe) -> None:
        if pipe in self.pipes:
            self.pipes.remove(pipe)
