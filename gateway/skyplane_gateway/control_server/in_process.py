"""A gateway inside a process that also calls it: its control API needs no port and no TLS."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.client import IN_MEMORY
from skyplane_gateway.control.in_memory import MemoryServer
from skyplane_gateway.control_server.calls import ControlCalls
from skyplane_gateway.service import GatewayService

log = logging.getLogger(__name__)

#: Limits of the cleanup, and of the control calls under way at the end.
_CLOSE_TIMEOUT_S: Final = 30.0
_RESPONSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class InMemoryGateway:
    """A gateway that answers the callers of its process, and listens for data."""

    service: GatewayService
    control: tuple[str, int]
    data_port: int
    _data: asyncio.Server
    _server: MemoryServer
    _keeper: asyncio.Task[None]

    async def close(self) -> None:
        """End within a time limit."""
        self._keeper.cancel()
        self._data.close()
        try:
            await asyncio.wait_for(self.service.close(), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            log.error("the cleanup took longer than %g s and was abandoned", _CLOSE_TIMEOUT_S)
        await self._server.close(_RESPONSE_TIMEOUT_S)


async def open_gateway(config: GatewayConfig) -> InMemoryGateway:
    """Start a gateway on the running event loop."""
    service = GatewayService(config, None)
    data = await asyncio.get_running_loop().create_server(
        service.router.accept, config.data_host, config.data_port
    )
    server = MemoryServer(ControlCalls(service).answer)
    return InMemoryGateway(
        service,
        (IN_MEMORY, server.number),
        data.sockets[0].getsockname()[1],
        data,
        server,
        asyncio.create_task(service.keep_alive()),
    )
