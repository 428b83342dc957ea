"""Control calls in memory: the real client's methods, the real server's handlers.

Between them the network's weather and faults of single calls: a request that is lost,
an answer that is lost after the effect, a slow answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from tests.simulation.network import Address
from tests.simulation.world import Process, World

from skyplane_gateway.common.identifiers import orchestrator_uri
from skyplane_gateway.control.caller import Caller, caller_of
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.control.connection_pool import ConnectionPool
from skyplane_gateway.control_server.calls import ControlCalls
from skyplane_gateway.service import GatewayService

CallFault = Literal["lost request", "lost answer", "slow"]

#: How long a slow answer takes.
SLOW_S: Final = 5.0


class ControlPlane:
    """The control APIs of a world, by address."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._servers: dict[Address, _Server] = {}
        self._all: list[_Server] = []
        #: Faults of the calls to come, by their number.
        self.faults: dict[int, CallFault] = {}
        self.calls = 0

    def serve(self, process: Process, service: GatewayService, address: Address) -> None:
        self._servers[address] = server = _Server(process, service)
        self._all.append(server)

    def unserve(self, process: Process) -> None:
        """Answer nothing more for a process that ends."""
        for address, server in tuple(self._servers.items()):
            if server.process is process:
                del self._servers[address]

    def server(self, address: Address) -> _Server | None:
        found = self._servers.get(address)
        return None if found is None or found.process.is_dead else found

    @property
    def wrongs(self) -> list[str]:
        return [text for server in self._all for text in server.wrongs]

    def next_fault(self) -> CallFault | None:
        self.calls += 1
        return self.faults.pop(self.calls, None)


class _Server:
    def __init__(self, process: Process, service: GatewayService) -> None:
        self.process = process
        self._service = service
        #: What it did that it should have refused.
        self.wrongs: list[str] = []
        self._calls = ControlCalls(service)

    async def answer(self, method: str, target: str, body: bytes, uri: str) -> tuple[int, bytes]:
        def caller() -> Caller:
            certificate = {"subjectAltName": (("URI", uri),)}
            return caller_of(certificate, self._service.config.fleet_key)

        is_stale = self._is_stale(target, body)
        try:
            status, document = await self._calls.answer(method, target, body, caller)
        except Exception as error:  # noqa: BLE001 - what aiohttp makes of it
            if not self._service.shutdown_requested.is_set():
                self.process.unhandled.append(f"{method} {target}: {error!r}")
            return 500, b"500 Internal Server Error"
        if is_stale and status == 200:
            self.wrongs.append(f"{self.process.name} obeyed a lead of an older epoch: {target}")
        return status, json.dumps(document).encode()

    def _is_stale(self, target: str, body: bytes) -> bool:
        """Whether a lead of an epoch that is over asks an end for something."""
        document = json.loads(body) if body else {}
        key = unquote(urlsplit(target).path.removeprefix("/v1/transfers/").partition("/")[0])
        ends = self._service.endpoints
        end = ends.destinations.get(key) if "verb" in document else ends.sources.get(key)
        is_lead = "verb" in document or "orders" in document
        return is_lead and end is not None and document["epoch"] < end.epoch


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """Passed where the real client takes its TLS context: who calls, from where."""

    plane: ControlPlane
    process: Process
    uri: str

    @classmethod
    def orchestrator(cls, plane: ControlPlane, process: Process, fleet_key: str) -> CallerIdentity:
        return cls(plane, process, orchestrator_uri(fleet_key))


@dataclass(slots=True)
class _Exchange:
    """One call under way."""

    wake: Callable[[], None]
    answer: tuple[int, bytes] | None = None
    error: OSError | None = None
    is_over: bool = field(default=False)

    def end(self, answer: tuple[int, bytes] | None, error: OSError | None) -> None:
        if not self.is_over:
            self.is_over = True
            self.answer, self.error = answer, error
            self.wake()


class _SimConnections(ConnectionPool):
    """Connections over the simulated network."""

    def __init__(self, identity: CallerIdentity, address: Address) -> None:
        self._identity = identity
        self._address = address

    def exchange(
        self, method: str, path: str, payload: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        return _Call(self._identity, self._address, method, path, payload or b"", timeout_s).run()

    def close(self) -> None: ...


class SimControlClient(ControlClient):
    """The real client over the simulated network."""

    def __init__(self, host: str, port: int, context: Any, *args: Any, **options: Any) -> None:
        super().__init__(host, port, context, *args, **options)
        self._pool = _SimConnections(context, (host, port))


@dataclass(slots=True)
class _Call:
    """One call from request to answer, in the caller's thread."""

    identity: CallerIdentity
    address: Address
    method: str
    path: str
    payload: bytes
    limit_s: float

    def run(self) -> tuple[int, bytes]:
        world = self.identity.plane.world
        fault = self.identity.plane.next_fault()
        if fault is not None:
            world.note(f"control: {fault}: {self.method} {self.path} to {self.address[0]}")
        exchange = _Exchange(lambda: None)

        def begin(wake: Callable[[], None]) -> None:
            exchange.wake = wake
            world.after(self.limit_s, lambda: exchange.end(None, TimeoutError("timed out")))
            if fault != "lost request":
                self._travel(
                    self.identity.process.host,
                    self.address[0],
                    lambda: self._arrive(exchange, fault),
                )

        world.block(begin)
        if exchange.error is not None:
            raise exchange.error
        assert exchange.answer is not None
        return exchange.answer

    def _travel(self, origin: str, target: str, then: Callable[[], None]) -> None:
        world = self.identity.plane.world
        weather = world.network.weather(origin, target)
        if weather.is_cut:
            weather.waiting.append(then)
        else:
            world.after(weather.latency_s, then)

    def _arrive(self, exchange: _Exchange, fault: CallFault | None) -> None:
        if exchange.is_over:
            return  # The caller has hung up before the request was complete.
        plane = self.identity.plane
        server = plane.server(self.address)
        if server is None:
            exchange.end(None, ConnectionRefusedError(111, "Connection refused"))
            return
        server.process.on_death.append(
            lambda: exchange.end(None, ConnectionResetError(104, "Connection reset by peer"))
        )
        plane.world.after(0.0, lambda: self._serve(server, exchange, fault), server.process)

    def _serve(self, server: _Server, exchange: _Exchange, fault: CallFault | None) -> None:
        async def work() -> None:
            answer = await server.answer(self.method, self.path, self.payload, self.identity.uri)
            if fault == "lost answer":
                return
            if fault == "slow":
                await asyncio.sleep(SLOW_S)
            self._travel(
                self.address[0],
                self.identity.process.host,
                lambda: exchange.end(answer, None),
            )

        server.process.loop.create_task(work(), name=f"{self.method} {self.path}")
