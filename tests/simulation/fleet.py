"""A fleet of real gateway services in one world, and what provisions it."""

from __future__ import annotations

import asyncio
import hashlib
import random
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from tests.simulation.control import CallerIdentity, ControlPlane, SimControlClient
from tests.simulation.loop import set_running
from tests.simulation.network import Network
from tests.simulation.world import Process, World

from skyplane_gateway.common.identifiers import gateway_uri
from skyplane_gateway.config import GatewayConfig, Route, Topology
from skyplane_gateway.protocol.messages import FrameHeader
from skyplane_gateway.service import GatewayService
from skyplane_orchestration.errors import FleetLost, ProvisionFailed, SkyplaneError
from skyplane_orchestration.model.fleet import Fleet, GatewayHandle
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT, RunIdentity
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.provisioner import (
    AuthorityOf,
    Finding,
    FleetSpec,
    Provisioner,
)

IDENTITY: Final = RunIdentity("simulated", "task", "run")
FLEET_KEY: Final = IDENTITY.fleet_key(0)

_REGION: Final = "aws:us-east-1"

#: A fleet that is not connected by then has not come up.
_CONNECT_WITHIN_S: Final = 90.0
_LOOK_S: Final = 0.1

#: A gateway that does not end is killed so much later.
_KILLED_AFTER_S: Final = 35.0

#: A gateway that has left exits so much later.
_FLUSHED_WITHIN_S: Final = 1.0


@dataclass(slots=True)
class Gateway:
    """One process of the fleet, alive or not."""

    process: Process
    service: GatewayService
    control: tuple[str, int]
    data: tuple[str, int]
    has_ended: bool = False

    @property
    def is_alive(self) -> bool:
        return not self.process.is_dead and not self.has_ended


@dataclass
class SimFleet:
    """Gateways by node; those that were replaced are kept for the inspection at the end.

    Args:
        settings: changes to every gateway's configuration.
    """

    world: World
    network: Network
    plane: ControlPlane
    routes: tuple[Route, ...]
    settings: Mapping[str, Any]
    gateways: dict[str, Gateway] = field(default_factory=dict)
    former: list[Gateway] = field(default_factory=list)
    woken_to_end: set[str] = field(default_factory=set)
    most_held_bytes: int = 0
    most_waiting_frames: int = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node for route in self.routes for node in route.nodes))

    def host(self, node: str) -> str:
        return f"10.0.0.{self.nodes.index(node) + 1}"

    @property
    def alive(self) -> list[Gateway]:
        return [gateway for gateway in self.gateways.values() if gateway.is_alive]

    # -- life and death of a gateway

    def start(self, node: str) -> None:
        """A fresh process in the place of that node, at ports of its own."""
        if node in self.gateways:
            self.former.append(self.gateways[node])
        host = self.host(node)
        process = self.world.process(node, host)
        control = (host, self.network.free_port())
        data = (host, self.network.free_port())
        identity = CallerIdentity(self.plane, process, gateway_uri(FLEET_KEY, node))
        config = GatewayConfig(
            node=node,
            fleet_key=FLEET_KEY,
            control_host=host,
            data_host=host,
            directory="/nowhere",
            hello_keys_hex={peer: "11" * 32 for peer in self.nodes if peer != node},
            **self.settings,
        )
        set_running(process.loop)
        try:
            service = GatewayService(
                config,
                cast(ssl.SSLContext, identity),
                self.world.clock,
                random.Random(self.world.rng.random()),
            )
        finally:
            set_running(None)
        gateway = Gateway(process, service, control, data)
        _watch_epochs(gateway)
        self.gateways[node] = gateway
        self.network.listen(process, service.router.accept, data)
        self.plane.serve(process, service, control)
        self.world.after(0.0, lambda: self._live(gateway), process)
        self.world.note(f"{node} starts")

    def _live(self, gateway: Gateway) -> None:
        loop = gateway.process.loop
        keeper = loop.create_task(gateway.service.keep_alive(), name="keeper")

        async def live() -> None:
            await gateway.service.shutdown_requested.wait()
            keeper.cancel()
            await asyncio.wait({keeper})
            self.network.unlisten(gateway.process)
            if gateway.service.is_leaving:
                await gateway.service.leave()
                self.plane.unserve(gateway.process)
                # What was closed politely is flushed meanwhile, and calls are answered.
                await asyncio.sleep(_FLUSHED_WITHIN_S)
                self.world.note(f"{gateway.process.name} has left")
                gateway.process.kill()
                return
            await gateway.service.close()
            self.plane.unserve(gateway.process)
            gateway.has_ended = True

        loop.create_task(live(), name="life")
        gateway.process.look = lambda: self._inspect(gateway)

    def _inspect(self, gateway: Gateway) -> None:
        """How much is held, now."""
        if not gateway.has_ended:
            self.most_held_bytes = max(self.most_held_bytes, gateway.service.sink.held_bytes)
            waiting = [row["waiting_frames"] for row in gateway.service.router.statistics()]
            self.most_waiting_frames = max([self.most_waiting_frames, *waiting])

    def kill(self, node: str) -> None:
        gateway = self.gateways[node]
        if gateway.is_alive:
            self.world.note(f"{node} is killed")
            gateway.process.kill()

    def terminate(self, node: str) -> None:
        """SIGTERM."""
        self.world.note(f"{node} is told to end")
        gateway = self.gateways[node]
        self.world.after(0.0, partial(gateway.service.request_leave, "SIGTERM"), gateway.process)

    def stop(self, node: str) -> None:
        """SIGSTOP."""
        self.world.note(f"{node} is stopped")
        self.gateways[node].process.stop()

    def wake(self, node: str) -> None:
        """SIGCONT."""
        self.world.note(f"{node} goes on")
        self.gateways[node].process.resume()

    def ask_to_end(self, gateway: Gateway, reason: str) -> None:
        """Request the shutdown as teardown does; a stopped process is woken."""
        self.world.after(0.0, partial(gateway.service.request_shutdown, reason), gateway.process)
        if gateway.process.is_stopped:
            # It answers what was asked of it meanwhile while it ends; its exit ends the rest.
            self.woken_to_end.add(gateway.process.name)
            gateway.process.resume()

    def topology(self) -> Topology:
        return Topology(
            self.routes,
            {node: gateway.data for node, gateway in self.gateways.items()},
            {node: gateway.control for node, gateway in self.gateways.items()},
        )


def _watch_epochs(gateway: Gateway) -> None:
    """Note when a sink takes a frame of an epoch that is over."""
    sink = gateway.service.sink
    take = sink.on_frame

    def on_frame(header: FrameHeader, sealed: memoryview) -> None:
        state = sink._transfers.get(header.chunk_id.transfer)
        is_stale = state is not None and header.chunk_id.epoch < state.epoch
        take(header, sealed)
        if is_stale and header.chunk_id in sink._assemblers:
            gateway.process.unhandled.append(f"a frame of epoch {header.chunk_id.epoch} was taken")

    sink.on_frame = on_frame  # type: ignore[method-assign]


@dataclass
class SimAuthority:
    """What the orchestrator proves itself by."""

    identity: CallerIdentity

    def client_context(self) -> CallerIdentity:
        return self.identity

    def expected_uri(self, node: str) -> str:
        return gateway_uri(FLEET_KEY, node)

    def sealing_key(self, transfer_key: str, start_id: str) -> bytes:
        return hashlib.sha256(transfer_key.encode()).digest()


@dataclass
class SimProvisioner(Provisioner):
    """Starts missing gateways, sends the topology, and waits until all are connected."""

    fleet: SimFleet
    authority: SimAuthority
    name: str = "simulated"
    ensured: int = 0

    def ensure(self, spec: FleetSpec, authority: Any) -> Fleet:
        self.ensured += 1
        if spec.must_exist and not self.fleet.gateways:
            raise FleetLost("there is no such fleet")
        self._await_leaving()
        self._start_missing()
        while True:
            try:
                self._tell(self.fleet.nodes, spec.times.start_within_s)
                break
            except SkyplaneError as error:
                # One that ends while it is asked is replaced: the real one adopts who answers.
                if not self._start_missing():
                    raise ProvisionFailed(f"a gateway does not answer: {error}") from error
        self._await_connected()
        return self.document(spec)

    def _await_leaving(self) -> None:
        """The real one ends who does not answer as a gateway of the fleet."""
        world = self.fleet.world
        deadline = world.now + _KILLED_AFTER_S
        while leaving := [gateway for gateway in self.fleet.alive if gateway.service.is_leaving]:
            if world.now > deadline:
                for gateway in leaving:
                    gateway.process.kill()
            world.sleep(_LOOK_S)

    def _start_missing(self) -> bool:
        """Whether one was missing."""
        there = self.fleet.gateways
        missing = [
            node for node in self.fleet.nodes if node not in there or not there[node].is_alive
        ]
        for node in missing:
            self.fleet.start(node)
        return bool(missing)

    def _client(self, node: str) -> SimControlClient:
        host, port = self.fleet.gateways[node].control
        context = cast(ssl.SSLContext, self.authority.identity)
        return SimControlClient(host, port, context, self.authority.expected_uri(node))

    def _tell(self, nodes: Iterable[str], start_within_s: float) -> None:
        topology = self.fleet.topology()
        for node in nodes:
            client = self._client(node)
            # As the real one, which renews the lease of a gateway that it adopts.
            client.renew(start_within_s)
            client.put_topology(topology)

    def _await_connected(self) -> None:
        world = self.fleet.world
        deadline = world.now + _CONNECT_WITHIN_S
        while not all(gateway.service.router.is_connected for gateway in self.fleet.alive):
            if world.now > deadline:
                raise ProvisionFailed("the gateways do not reach each other")
            world.sleep(_LOOK_S)

    def document(self, spec: FleetSpec) -> Fleet:
        topology = self.fleet.topology()
        return Fleet(
            key=spec.key,
            generation=spec.generation,
            deployment=spec.deployment,
            provisioner=self.name,
            plan=spec.plan,
            gateways=tuple(
                GatewayHandle(node, _REGION, gateway.control, gateway.data, "")
                for node, gateway in self.fleet.gateways.items()
            ),
            routes=tuple(topology.to_dict()["routes"]),
            host="here",
            provision_s=0.0,
            hard_end_unix_s=2e9,
        )

    def destroy(self, key: str) -> tuple[str, ...]:
        """Ask those that live to end, and wait until they have; nothing else outlives them."""
        alive = self.fleet.alive
        for gateway in alive:
            self.fleet.ask_to_end(gateway, "torn down")
        while self.fleet.alive:
            self.fleet.world.sleep(_LOOK_S)
        return tuple(gateway.process.name for gateway in alive)

    def describe(self, key: str) -> tuple[Any, ...]:
        return tuple(self.fleet.alive)

    def recorded(self, key: str) -> Fleet | None:
        return None

    def log_tails(self, key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        return {}

    def check_host(self, fleet: Fleet) -> None:
        """It is here."""

    def sweep(
        self,
        deployment: str,
        *,
        dry_run: bool = False,
        older_than_s: float | None = None,
        authority_of: AuthorityOf | None = None,
    ) -> SweepReport:
        return SweepReport((), (), dry_run)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return ()

    has_internal_addresses = True

    def runs_on_this_machine(self, plan: TransferPlan) -> bool:
        return True

    def store_identity(self, region: str) -> str:
        return ""

    @property
    def provision_s(self) -> Mapping[str, float]:
        return {}

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return ()
