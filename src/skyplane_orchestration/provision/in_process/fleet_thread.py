"""The thread in which the gateways of one fleet run, with an event loop of their own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from skyplane_gateway.config import GatewayConfig, Route
from skyplane_gateway.control_server.open_gateway import OpenGateway, open_in_memory
from skyplane_orchestration.errors import ProvisionFailed, TeardownIncomplete
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.control_sessions import topology_of

log = logging.getLogger(__name__)

#: Control calls and long polls, which mostly wait.
_CALL_THREADS: Final = 16


class FleetThread:
    """Runs gateways until `stop`, or until the lease of each has expired.

    Args:
        configs: region tag -> the configuration of its gateway.
    """

    def __init__(self, configs: Mapping[str, GatewayConfig], routes: tuple[Route, ...]) -> None:
        self._configs = configs
        self._routes = routes
        self._loop = asyncio.new_event_loop()
        self._gateways: list[OpenGateway] = []
        self._ready = threading.Event()
        self._error: Exception | None = None
        self.handles: dict[str, GatewayHandle] = {}
        # A daemon: the interpreter must be able to end while a store does not respond.
        self._thread = threading.Thread(target=self._run, name="gateways", daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self, timeout_s: float) -> None:
        """Start the gateways and connect them. Raises ProvisionFailed."""
        self._thread.start()
        if not self._ready.wait(timeout_s):
            self.stop(timeout_s)
            raise ProvisionFailed(f"the gateways are not connected after {timeout_s:g} s")
        if self._error is not None:
            self._thread.join()
            raise ProvisionFailed(f"the gateways did not start: {self._error}") from self._error

    def stop(self, timeout_s: float) -> None:
        """End the gateways. Raises TeardownIncomplete."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._request_shutdown)
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TeardownIncomplete(
                f"the gateways in this process have not ended after {timeout_s:g} s: a store does"
                " not respond"
            )

    def _request_shutdown(self) -> None:
        for gateway in self._gateways:
            gateway.service.request_shutdown("torn down")

    def _run(self) -> None:
        calls = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="call")
        self._loop.set_default_executor(calls)
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:
            if self._ready.is_set():  # Else `start` raises it.
                log.exception("the gateways in this process ended with an error")
            self._error = error
        finally:
            calls.shutdown(wait=False, cancel_futures=True)
            self._loop.close()
            self._ready.set()

    async def _serve(self) -> None:
        try:
            for region, config in self._configs.items():
                gateway = await open_in_memory(config)
                self._gateways.append(gateway)
                data = config.data_host, gateway.data_port
                self.handles[config.node] = GatewayHandle(
                    config.node, region, gateway.control, data, fingerprint=""
                )
            await self._connect()
            self._ready.set()
            await asyncio.gather(
                *(gateway.service.shutdown_requested.wait() for gateway in self._gateways)
            )
        finally:
            await asyncio.gather(*(gateway.close() for gateway in self._gateways))

    async def _connect(self) -> None:
        for gateway in self._gateways:
            handle = self.handles[gateway.service.config.node]
            gateway.service.apply_topology(topology_of(self._routes, self.handles, handle))
        routers = [gateway.service.router for gateway in self._gateways]
        while not all(router.is_connected for router in routers):  # noqa: ASYNC110 (several)
            await asyncio.sleep(0.002)
