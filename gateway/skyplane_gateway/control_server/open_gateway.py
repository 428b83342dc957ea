"""A gateway that answers control calls and listens for data, until it is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.client import IN_MEMORY
from skyplane_gateway.control.in_memory import MemoryServer
from skyplane_gateway.control_server.calls import ControlCalls
from skyplane_gateway.service import GatewayService

log = logging.getLogger(__name__)

#: Limits of the cleanup, and of the control calls under way at the end.
_CLOSE_TIMEOUT_S: Final = 30.0
RESPONSE_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class OpenGateway:
    """A gateway of this process.

    Attributes:
        control: address of its control API.
        close_control: takes no more control calls.
    """

    service: GatewayService
    control: tuple[str, int]
    data_port: int
    data: asyncio.Server
    close_control: Callable[[], Awaitable[None]]
    keeper: asyncio.Task[None]

    async def close(self) -> None:
        """End within a time limit: 25 s after a SIGTERM."""
        self.keeper.cancel()
        self.data.close()
        end = self.service.leave if self.service.is_leaving else self.service.close
        try:
            await asyncio.wait_for(end(), _CLOSE_TIMEOUT_S)
        except TimeoutError:
            log.error("the cleanup took longer than %g s and was abandoned", _CLOSE_TIMEOUT_S)
        await self.close_control()


async def open_in_memory(config: GatewayConfig) -> OpenGateway:
    """Start a gateway on the running event loop, for callers of this process.

    Its control API needs no port and no TLS.
    """
    service = GatewayService(config, None)
    data = await asyncio.get_running_loop().create_server(
        service.router.accept, config.data_host, config.data_port
    )
    server = MemoryServer(ControlCalls(service).answer)
    return OpenGateway(
        service,
        (IN_MEMORY, server.number),
        data.sockets[0].getsockname()[1],
        data,
        partial(server.close, RESPONSE_TIMEOUT_S),
        asyncio.create_task(service.keep_alive()),
    )
