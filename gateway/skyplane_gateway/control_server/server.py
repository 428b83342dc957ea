"""The control API's server: takes requests over HTTPS, by aiohttp, and hands them to the calls."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.control.caller import Caller, caller_of
from skyplane_gateway.control_server.calls import ControlCalls
from skyplane_gateway.service import GatewayService

#: Largest request body. A batch of orders with the longest keys takes less than 1 MiB.
_MAX_BODY_BYTES: Final = 16 << 20


class ControlServer:
    """The HTTP application of one gateway."""

    def __init__(self, gateway: GatewayService) -> None:
        self._fleet_key = gateway.config.fleet_key
        self._calls = ControlCalls(gateway)

    def application(self) -> web.Application:
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await request.read()
        except web.HTTPException as error:
            refused = ConfigurationInvalid(f"{request.method} {request.path}: {error.reason}")
            return web.json_response(refused.to_dict(), status=error.status)
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None

        def caller() -> Caller:
            return caller_of(certificate, self._fleet_key)

        status, document = await self._calls.answer(request.method, request.raw_path, body, caller)
        return web.json_response(dict(document), status=status)
