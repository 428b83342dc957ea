"""The control API's server: parses and authorises requests, and calls the gateway.

The orchestrator may call everything except the verbs of a lead. A source gateway, which
may be a lead, may call only those verbs.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from skyplane_gateway.chunk_orders import ChunkOrder
from skyplane_gateway.config import Topology, TransferSpec
from skyplane_gateway.control.interface import Gateway
from skyplane_gateway.control.tls import Caller, caller_of
from skyplane_gateway.errors import (
    ConfigurationInvalid,
    InternalError,
    NotAuthorised,
    SkyplaneError,
    Stopped,
    StoreUnavailable,
)
from skyplane_gateway.objects import Credentials, StoreSpec

log = logging.getLogger(__name__)

#: Largest request body. A batch of orders with the longest keys takes less than 1 MiB.
_MAX_BODY_BYTES: Final = 16 << 20

#: Longest wait of a long poll, whatever the caller asks for.
_MAX_WAIT_S: Final = 30.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Response = Mapping[str, Any]


class ControlServer:
    """Maps requests to calls of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_as_json], client_max_size=_MAX_BODY_BYTES)
        orchestrator, lead, both = self._for_orchestrator, self._for_lead, self._for_both
        transfer = "/v1/transfers/{key}"
        app.add_routes(
            [
                web.get("/v1/status", both(self._status)),
                web.get("/v1/log", orchestrator(self._log)),
                web.put("/v1/topology", orchestrator(self._topology)),
                web.post("/v1/renew", both(self._renew)),
                web.post("/v1/drain", orchestrator(self._drain)),
                web.post("/v1/shutdown", orchestrator(self._shutdown)),
                web.post(transfer, orchestrator(self._submit)),
                web.get(transfer, orchestrator(self._transfer_status)),
                web.post(transfer + "/attach", orchestrator(self._attach)),
                web.post(transfer + "/credentials", orchestrator(self._credentials)),
                web.get(transfer + "/report", orchestrator(self._report)),
                web.post(transfer + "/cancel", orchestrator(self._cancel)),
                web.post(transfer + "/stop", orchestrator(self._stop)),
                web.post(transfer + "/release", both(self._release)),
                web.post(transfer + "/chunks", lead(self._chunks)),
                web.get(transfer + "/outcomes", lead(self._outcomes)),
                web.get(transfer + "/waiting", lead(self._waiting)),
                web.post(transfer + "/store", lead(self._store)),
            ]
        )
        return app

    # -- authorisation

    def _caller(self, request: web.Request) -> Caller:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        return caller_of(certificate, self._gateway.config.fleet_key)

    def _guarded(
        self, call: Callable[[web.Request], Awaitable[Response]], allows: Callable[[Caller], bool]
    ) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            caller = self._caller(request)
            if not allows(caller):
                raise NotAuthorised(
                    f"{caller.node or 'the orchestrator'} may not call "
                    f"{request.method} {request.path} on {self._gateway.config.node}"
                )
            self._gateway.require_in_service()
            try:
                response = await call(request)
            except StoreUnavailable:
                # The store may have carried out the request: the caller has to look.
                raise
            except (SkyplaneError, RuntimeError):
                # An error of a gateway that is ending says nothing about the transfer.
                self._gateway.require_in_service()
                raise
            return web.json_response(dict(response))

        return handle

    def _for_orchestrator(self, call: Callable[[web.Request], Awaitable[Response]]) -> Handler:
        return self._guarded(call, lambda caller: caller.is_orchestrator)

    def _for_lead(self, call: Callable[[web.Request], Awaitable[Response]]) -> Handler:
        return self._guarded(call, lambda caller: self._gateway.may_lead(caller.node))

    def _for_both(self, call: Callable[[web.Request], Awaitable[Response]]) -> Handler:
        return self._guarded(
            call, lambda caller: caller.is_orchestrator or self._gateway.may_lead(caller.node)
        )

    # -- the gateway itself

    async def _status(self, request: web.Request) -> Response:
        return self._gateway.status()

    async def _log(self, request: web.Request) -> Response:
        return {"text": self._gateway.log_tail(_number(request, "max_bytes", 64 << 10))}

    async def _topology(self, request: web.Request) -> Response:
        self._gateway.apply_topology(Topology.from_dict(await _body(request)))
        return {}

    async def _renew(self, request: web.Request) -> Response:
        lease_s = (await _body(request)).get("lease_s")
        self._gateway.lease.renew(None if lease_s is None else float(lease_s))
        return {}

    async def _drain(self, request: web.Request) -> Response:
        unless_leading = bool((await _body(request)).get("unless_leading", False))
        return {"draining": self._gateway.drain(unless_leading=unless_leading)}

    async def _shutdown(self, request: web.Request) -> Response:
        self._gateway.request_shutdown("asked to by the orchestrator")
        return {}

    # -- transfers

    async def _attach(self, request: web.Request) -> Response:
        body = await _body(request)
        credentials = body.get("credentials")
        return await self._gateway.endpoints.attach(
            _key(request),
            epoch=int(body["epoch"]),
            side=body["side"],
            store=StoreSpec.from_dict(body["store"]),
            credentials=Credentials.from_dict(credentials) if credentials is not None else None,
            verify=body.get("verify", "stored"),
            bytes_per_s=body.get("bytes_per_s"),
        )

    async def _credentials(self, request: web.Request) -> Response:
        body = await _body(request)
        return await self._gateway.endpoints.renew_credentials(
            _key(request),
            epoch=int(body["epoch"]),
            side=body["side"],
            credentials=Credentials.from_dict(body["credentials"]),
        )

    async def _submit(self, request: web.Request) -> Response:
        body = await _body(request)
        spec = TransferSpec.from_dict(body["spec"])
        return await self._gateway.leads.submit(_key(request), epoch=int(body["epoch"]), spec=spec)

    async def _transfer_status(self, request: web.Request) -> Response:
        key, session = _key(request), request.query.get("session", "")
        lead = self._gateway.leads.transfer(key)
        if _number(request, "renew", 0):
            self._gateway.lease.renew()
            self._gateway.pollers.note(key, session)
        else:
            self._gateway.pollers.forget(key, session)
        wait_s = _wait_s(request)
        if wait_s:
            await lead.wait_for_end(wait_s)
            self._gateway.require_in_service()
        return {
            **lead.status(),
            "waited": wait_s > 0,
            "followers": self._gateway.pollers.count(key),
            "needs_credentials": self._gateway.endpoints.needs_credentials(key),
        }

    async def _report(self, request: web.Request) -> Response:
        lead = self._gateway.leads.transfer(_key(request))
        # A report may have many pages, and a caller that reads them does not poll.
        self._gateway.lease.renew()
        self._gateway.pollers.note(_key(request), request.query.get("session", ""))
        return lead.report.page(_number(request, "offset", 0))

    async def _cancel(self, request: web.Request) -> Response:
        await self._gateway.leads.cancel(_key(request))
        return {}

    async def _stop(self, request: web.Request) -> Response:
        reason = str((await _body(request))["reason"])
        await self._gateway.leads.stop(_key(request), Stopped(reason))
        return {}

    async def _release(self, request: web.Request) -> Response:
        body = await _body(request)
        journals_in = body.get("journals_in")
        is_cleared = await self._gateway.endpoints.release(
            _key(request),
            int(body["epoch"]),
            None if journals_in is None else str(journals_in),
        )
        return {"cleared": is_cleared}

    async def _chunks(self, request: web.Request) -> Response:
        body = await _body(request)
        source = self._gateway.endpoints.source(_key(request), int(body["epoch"]))
        for order in body["orders"]:
            source.take(ChunkOrder.from_dict(order))
        return {}

    async def _outcomes(self, request: web.Request) -> Response:
        # Every epoch numbers its chunks from the start.
        source = self._gateway.endpoints.source(_key(request), _number(request, "epoch", 0))
        last, outcomes = await source.outcomes(_number(request, "after", 0), _wait_s(request))
        return {"last": last, "outcomes": [outcome.to_dict() for outcome in outcomes]}

    async def _waiting(self, request: web.Request) -> Response:
        source = self._gateway.endpoints.source(_key(request), _number(request, "epoch", 0))
        return {"chunks": [list(identity) for identity in source.waiting()]}

    async def _store(self, request: web.Request) -> Response:
        body = await _body(request)
        return await self._gateway.endpoints.store_verb(
            _key(request), int(body["epoch"]), body["verb"], body["arguments"]
        )


@web.middleware
async def _as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except SkyplaneError as error:
        status = 422 if error.is_permanent else 503
        return web.json_response(error.to_dict(), status=status)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        log.exception("bad request %s %s", request.method, request.path)
        invalid = ConfigurationInvalid(
            f"{request.method} {request.path} is not a valid request "
            f"({type(error).__name__}); the gateway's log says more"
        )
        return web.json_response(invalid.to_dict(), status=400)
    except web.HTTPException as error:
        unknown = ConfigurationInvalid(f"{request.method} {request.path}: {error.reason}")
        return web.json_response(unknown.to_dict(), status=error.status)
    except Exception as error:  # A bare status 500 would tell the caller nothing.
        log.exception("%s %s failed", request.method, request.path)
        failed = InternalError.of(error, f"{request.method} {request.path}", "this gateway")
        return web.json_response(failed.to_dict(), status=500)


async def _body(request: web.Request) -> dict[str, Any]:
    body = await request.json()
    if not isinstance(body, dict):
        raise ConfigurationInvalid("the request body must be a JSON object")
    return body


def _key(request: web.Request) -> str:
    return request.match_info["key"]


def _wait_s(request: web.Request) -> float:
    return min(float(request.query.get("wait_s", "0")), _MAX_WAIT_S)


def _number(request: web.Request, name: str, default: int) -> int:
    return int(request.query.get(name, default))
