"""A whole fleet in one process: real sockets, stores in memory.

Control calls take the way of callers in the same process. With `over_tls` they take that of other
processes, which costs ten times the CPU.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gateway.wire_proxy import WireProxy
from tests.memory_store import create_bucket

from skyplane_gateway.common.job_options import Verification
from skyplane_gateway.common.objects import Credentials, ObjectAttributes, StoreSpec
from skyplane_gateway.config import AttachOrder, End, GatewayConfig, Route, Topology, TransferSpec
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.control_server.open_gateway import open_in_memory
from skyplane_gateway.journal.document import (
    MAX_JOURNAL_BYTES,
    Journal,
    decode_journal,
    folder_of_destination,
)
from skyplane_gateway.main import listen
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER
from skyplane_gateway.service import GatewayService
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore, read_object
from skyplane_orchestration.security.authority import Authority, FleetSecret

HOST = "127.0.0.1"

#: Small windows make every bound bite with little data.
SMALL = {"ack_deadline_s": 30.0, "assembly_mib": 8, "readers": 3, "store_threads": 4}


def route(number: int, *nodes: str, connections: int = 2, share_gbps: float = 1.0) -> Route:
    return Route(number, nodes, (connections,) * (len(nodes) - 1), share_gbps)


@dataclass
class InProcessFleet:
    """Gateways of one test, by node name."""

    routes: tuple[Route, ...]
    directory: Path
    settings: dict[str, Any]
    over_tls: bool = False
    wire: WireProxy | None = None
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    gateways: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authority = Authority(FleetSecret(b"the secret of the service tests!!"), self.key)
        self._context = self.authority.client_context() if self.over_tls else None

    @property
    def nodes(self) -> list[str]:
        return list(dict.fromkeys(node for route in self.routes for node in route.nodes))

    def service(self, node: str) -> GatewayService:
        service: GatewayService = self.gateways[node].service
        return service

    def client(self, node: str, authority: Authority | None = None) -> ControlClient:
        uri = self.authority.expected_uri(node)
        if not self.over_tls:
            return ControlClient(*self.control_address(node), None, uri)
        context = self._context if authority is None else authority.client_context()
        return ControlClient(*self.control_address(node), context, uri)

    def control_address(self, node: str) -> tuple[str, int]:
        control: tuple[str, int] = self.gateways[node].control
        return control

    def config(self, node: str) -> GatewayConfig:
        directory = self.directory / node.replace("/", "_").replace(":", "_")
        directory.mkdir(mode=0o700)
        config = GatewayConfig(
            node=node,
            fleet_key=self.key,
            control_host=HOST,
            data_host=HOST,
            directory=str(directory),
            hello_keys_hex={
                peer: self.authority.hello_key(node, peer).hex()
                for peer in self.nodes
                if peer != node
            },
            **self.settings,
        )
        if self.over_tls:
            self._write_certificates(config)
        return config

    def _write_certificates(self, config: GatewayConfig) -> None:
        node = config.node
        issued = self.authority.issue(self.authority.expected_uri(node), 3600.0)
        config.certificate_path.write_text(issued.certificate_pem + issued.private_key_pem)
        config.authority_path.write_text(self.authority.ca_certificate_pem(2**31))

    async def start(self) -> None:
        # All gateways of the test share one event loop, and so one pool for their calls.
        loop = asyncio.get_running_loop()
        if getattr(loop, "_default_executor", None) is None:
            loop.set_default_executor(ThreadPoolExecutor(128))
        begin = listen if self.over_tls else open_in_memory
        for node in self.nodes:
            if self.wire is None or node != self.wire.relay:
                self.gateways[node] = await begin(self.config(node))
        if self.wire is not None:
            await self.wire.open(self)
        for node in self.gateways:
            await asyncio.to_thread(self.client(node).put_topology, self.topology(node))
        await self.until(lambda: all(g.service.router.is_connected for g in self.gateways.values()))

    def topology(self, seen_by: str = "") -> Topology:
        data = {node: (HOST, gateway.data_port) for node, gateway in self.gateways.items()}
        control = {node: self.control_address(node) for node in self.gateways}
        if self.wire is not None:
            data |= self.wire.addresses(seen_by)
        return Topology(self.routes, data, control)

    @staticmethod
    async def until(condition: Callable[[], bool]) -> None:
        """Let the event loop run until it holds; a hang ends with pytest's own guard."""
        while not condition():  # noqa: ASYNC110 - nobody inside tells us
            await asyncio.sleep(0.005)

    # -- a transfer, as the orchestrator drives it

    async def attach(
        self,
        transfer: str,
        source: StoreSpec,
        destination: StoreSpec,
        *,
        epoch: int = 1,
        verify: Verification = "stored",
        is_encrypted: bool = False,
        source_credentials: Credentials | None = None,
    ) -> None:
        topology = self.topology()
        ends: list[tuple[End, tuple[str, ...], StoreSpec]] = [
            ("source", topology.sources, source),
            ("sink", topology.sinks, destination),
        ]
        for side, nodes, store in ends:
            for node in nodes:
                order = AttachOrder(
                    epoch,
                    side,
                    store,
                    source_credentials if side == "source" else None,
                    verify,
                    sealing_key=self.sealing_key(transfer).hex() if is_encrypted else None,
                )
                await asyncio.to_thread(self.client(node).attach, transfer, order)

    def sealing_key(self, transfer: str) -> bytes:
        return self.authority.sealing_key(transfer, "")

    async def submit(self, transfer: str, spec: TransferSpec, *, epoch: int = 1) -> dict[str, Any]:
        lead = self.client(self.topology().sources[0])
        return await asyncio.to_thread(lambda: lead.submit(transfer, epoch=epoch, spec=spec))

    async def begin(
        self, transfer: str, spec: TransferSpec, *, epoch: int = 1, **attached: Any
    ) -> dict[str, Any]:
        """Attach both ends and submit; `attached` goes to `attach`."""
        await self.attach(transfer, spec.source, spec.destination, epoch=epoch, **attached)
        return await self.submit(transfer, spec, epoch=epoch)

    async def ended(self, transfer: str) -> dict[str, Any]:
        """The status document once the transfer has ended."""
        lead = self.service(self.topology().sources[0]).leads.transfer(transfer)
        await self.until(lambda: lead.status()["state"] != "running")
        return lead.status()

    def report(self, status: dict[str, Any]) -> list[dict[str, Any]]:
        """Rows of a transfer's first page, by its status."""
        lead = self.service(self.topology().sources[0]).leads.transfer(status["transfer_key"])
        rows: list[dict[str, Any]] = lead.report.page(0)["rows"]
        return rows

    async def heard(self, transfer: str, spec: TransferSpec, *, epoch: int = 1) -> None:
        """As its orchestrator does once it knows that the transfer has succeeded."""
        topology = self.topology()
        folder = folder_of_destination(spec.destination_prefix, recursive=spec.recursive)
        for node in dict.fromkeys((*topology.sources, *topology.sinks)):
            client = self.client(node)
            await asyncio.to_thread(client.release, transfer, epoch, journals_in=folder)

    async def run(self, spec: TransferSpec, **attached: Any) -> dict[str, Any]:
        """A whole transfer; `attached` goes to `attach`."""
        transfer = uuid.uuid4().hex
        await self.begin(transfer, spec, **attached)
        status = await self.ended(transfer)
        if status["state"] == "succeeded":
            await self.heard(transfer, spec)
        return status


def memory_spec() -> StoreSpec:
    """A bucket of its own for every call."""
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return spec


def fill(
    spec: StoreSpec, objects: dict[str, bytes], attributes: ObjectAttributes | None = None
) -> ObjectStore:
    store = open_store(spec)
    for key, body in objects.items():
        store.put(key, body, attributes=attributes)
    return store


def content(spec: StoreSpec) -> dict[str, bytes]:
    store = open_store(spec)
    found = {}
    for info in store.list(""):
        if JOURNAL_FOLDER in info.key:
            continue
        body = bytearray(info.size_bytes)
        with store.read(info.key, offset=0, length=len(body), if_match=info.etag) as reader:
            view = memoryview(body)
            while view:
                view = view[reader.readinto(view) :]
        found[info.key] = bytes(body)
    return found


def uploads(spec: StoreSpec) -> list[str]:
    return [upload.key for upload in open_store(spec).list_uploads("")]


def journals(spec: StoreSpec) -> list[Journal]:
    """What leads have left at the destination, oldest epoch first."""
    store = open_store(spec)
    keys = [row.key for row in store.list("") if JOURNAL_FOLDER in row.key]
    return [decode_journal(read_object(store, key, max_bytes=MAX_JOURNAL_BYTES)[1]) for key in keys]


def named_uploads(spec: StoreSpec) -> set[str]:
    """Keys of the uploads that a journal names."""
    return {row.key for journal in journals(spec) for row in journal.uploads}


def copy_spec(source: StoreSpec, destination: StoreSpec, **more: Any) -> TransferSpec:
    return TransferSpec(
        source=source,
        destination=destination,
        source_prefix=more.pop("source_prefix", ""),
        destination_prefix=more.pop("destination_prefix", ""),
        **more,
    )


def buckets(
    objects: dict[str, bytes] | None = None, attributes: ObjectAttributes | None = None
) -> tuple[StoreSpec, StoreSpec]:
    """A source with these objects, and an empty destination."""
    source, destination = memory_spec(), memory_spec()
    fill(source, objects or {}, attributes)
    return source, destination


class Gate:
    """Holds every write of an object until it is opened; counts what was read and held."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._lock = threading.Lock()
        self.waiting = 0
        self.read_bytes = 0

    def open(self) -> None:
        self._opened.set()

    def write(self, original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        if JOURNAL_FOLDER not in key:
            with self._lock:
                self.waiting += 1
            self._opened.wait(60)
            with self._lock:
                self.waiting -= 1
        return original(key, *arguments, **more)

    def read(self, original: Any, key: str, *, length: int, **more: Any) -> Any:
        if JOURNAL_FOLDER not in key:
            with self._lock:
                self.read_bytes += length
        return original(key, length=length, **more)
