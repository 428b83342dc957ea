"""What the control server calls: the gateway, the transfers that it leads, its endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from skyplane_gateway.chunk_orders import ChunkOrder, ChunkOutcome
from skyplane_gateway.config import GatewayConfig, Topology, TransferSpec
from skyplane_gateway.errors import SkyplaneError
from skyplane_gateway.lease import Lease
from skyplane_gateway.objects import Credentials, StoreSpec
from skyplane_gateway.pollers import Pollers
from skyplane_gateway.stores.listed_rows import ListedRows


class Report(Protocol):
    """The per-object report of a transfer."""

    def page(self, offset: int) -> Mapping[str, Any]: ...


class LedTransfer(Protocol):
    """A transfer that the gateway leads or led."""

    @property
    def report(self) -> Report: ...

    def status(self) -> Mapping[str, Any]: ...

    async def wait_for_end(self, wait_s: float) -> None: ...


class Source(Protocol):
    """The source side of one transfer."""

    def take(self, order: ChunkOrder) -> None: ...

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, Sequence[ChunkOutcome]]: ...

    def waiting(self) -> Sequence[tuple[int, int]]: ...


class Endpoints(Protocol):
    """The source and sink sides of transfers at the gateway."""

    async def attach(
        self,
        key: str,
        *,
        epoch: int,
        side: str,
        store: StoreSpec,
        credentials: Credentials | None,
        verify: str,
        bytes_per_s: float | None = None,
        sealing_key: bytes | None = None,
    ) -> Mapping[str, Any]: ...

    async def renew_credentials(
        self, key: str, *, epoch: int, side: str, credentials: Credentials
    ) -> Mapping[str, Any]: ...

    def needs_credentials(self, key: str) -> Sequence[str]: ...

    async def release(self, key: str, epoch: int, journals_in: str | None = None) -> bool: ...

    def source(self, key: str, epoch: int) -> Source: ...

    async def store_verb(
        self, key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]: ...


class Leads(Protocol):
    """The transfers that the gateway leads or led."""

    def transfer(self, key: str) -> LedTransfer: ...

    async def submit(
        self,
        key: str,
        *,
        epoch: int,
        spec: TransferSpec,
        listed: ListedRows | None = None,
    ) -> Mapping[str, Any]: ...

    async def cancel(self, key: str) -> None: ...

    async def stop(self, key: str, why: SkyplaneError) -> None: ...


class Gateway(Protocol):
    """One gateway process; all methods run on its event loop."""

    @property
    def config(self) -> GatewayConfig: ...

    @property
    def lease(self) -> Lease: ...

    @property
    def pollers(self) -> Pollers: ...

    @property
    def endpoints(self) -> Endpoints: ...

    @property
    def leads(self) -> Leads: ...

    def require_in_service(self) -> None: ...

    def may_lead(self, node: str) -> bool: ...

    def status(self) -> Mapping[str, Any]: ...

    def log_tail(self, max_bytes: int) -> str: ...

    def apply_topology(self, topology: Topology) -> None: ...

    def drain(self, *, unless_leading: bool = False) -> bool: ...

    def request_shutdown(self, reason: str) -> None: ...
