"""The control API's server: parses, authorises, calls the service. No logic of its own.

Who may call what: the orchestrator everything but what only a lead needs; a source
gateway (which may be leading) what a lead needs; nobody else anything.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from skyplane_gateway.chunk_orders import ChunkOrder
from skyplane_gateway.config import Topology, TransferSpec
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
from skyplane_gateway.service import GatewayService

log = logging.getLogger(__name__)

#: Largest request body: a batch of orders with the longest keys stays below a mebibyte.
_MAX_BODY_BYTES: Final = 16 << 20

#: Longest long poll that is granted.
_MAX_WAIT_S: Final = 30.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Mapping[str, Any]


class ControlServer:
    """Maps requests to a `GatewayService`."""

    def __init__(self, service: GatewayService) -> None:
        self._service = service

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
        return caller_of(certificate, self._service.config.fleet_key)

    def _guarded(
        self, call: Callable[[web.Request], Awaitable[Answer]], allows: Callable[[Caller], bool]
    ) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            caller = self._caller(request)
            if not allows(caller):
                raise NotAuthorised(
                    f"{caller.node or 'the orchestrator'} may not call "
                    f"{request.method} {request.path} on {self._service.config.node}"
                )
            self._service.require_in_service()
            try:
                answer = await call(request)
            except StoreUnavailable:
                # The store may have done it: whoever asked has to look for that.
                raise
            except (SkyplaneError, RuntimeError):
                # What breaks because this gateway ends says nothing of the transfer.
                self._service.require_in_service()
                raise
            return web.json_response(dict(answer))

        return handle

    def _for_orchestrator(self, call: Callable[[web.Request], Awaitable[Answer]]) -> Handler:
        return self._guarded(call, lambda caller: caller.is_orchestrator)

    def _for_lead(self, call: Callable[[web.Request], Awaitable[Answer]]) -> Handler:
        return self._guarded(call, lambda caller: self._service.may_lead(caller.node))

    def _for_both(self, call: Callable[[web.Request], Awaitable[Answer]]) -> Handler:
        return self._guarded(
            call, lambda caller: caller.is_orchestrator or self._service.may_lead(caller.node)
        )

    # -- the gateway itself

    async def _status(self, request: web.Request) -> Answer:
        return self._service.status()

    async def _log(self, request: web.Request) -> Answer:
        return {"text": self._service.log_tail(_number(request, "max_bytes", 64 << 10))}

    async def _topology(self, request: web.Request) -> Answer:
        self._service.apply_topology(Topology.from_dict(await _body(request)))
        return {}

    async def _renew(self, request: web.Request) -> Answer:
        lease_s = (await _body(request)).get("lease_s")
        self._service.lease.renew(None if lease_s is None else float(lease_s))
        return {}

    async def _drain(self, request: web.Request) -> Answer:
        unless_leading = bool((await _body(request)).get("unless_leading", False))
        return {"draining": self._service.drain(unless_leading=unless_leading)}

    async def _shutdown(self, request: web.Request) -> Answer:
        self._service.request_shutdown("asked to by the orchestrator")
        return {}

    # -- transfers

    async def _attach(self, request: web.Request) -> Answer:
        body = await _body(request)
        credentials = body.get("credentials")
        return await self._service.ends.attach(
            _key(request),
            epoch=int(body["epoch"]),
            side=body["side"],
            store=StoreSpec.from_dict(body["store"]),
            credentials=Credentials.from_dict(credentials) if credentials is not None else None,
            verify=body.get("verify", "stored"),
        )

    async def _credentials(self, request: web.Request) -> Answer:
        body = await _body(request)
        return await self._service.ends.renew_credentials(
            _key(request),
            epoch=int(body["epoch"]),
            side=body["side"],
            credentials=Credentials.from_dict(body["credentials"]),
        )

    async def _submit(self, request: web.Request) -> Answer:
        body = await _body(request)
        spec = TransferSpec.from_dict(body["spec"])
        return await self._service.submit(_key(request), epoch=int(body["epoch"]), spec=spec)

    async def _transfer_status(self, request: web.Request) -> Answer:
        key, session = _key(request), request.query.get("session", "")
        lead = self._service.lead(key)
        if _number(request, "renew", 0):
            self._service.lease.renew()
            self._service.followers.note(key, session)
        else:
            self._service.followers.forget(key, session)
        return {
            **lead.status(),
            "followers": self._service.followers.count(key),
            "needs_credentials": self._service.ends.needs_credentials(key),
        }

    async def _report(self, request: web.Request) -> Answer:
        lead = self._service.lead(_key(request))
        # Nobody polls any more, and a report may have very many pages.
        self._service.lease.renew()
        self._service.followers.note(_key(request), request.query.get("session", ""))
        return lead.report.page(_number(request, "offset", 0))

    async def _cancel(self, request: web.Request) -> Answer:
        await self._service.cancel(_key(request))
        return {}

    async def _stop(self, request: web.Request) -> Answer:
        reason = str((await _body(request))["reason"])
        await self._service.stop(_key(request), Stopped(reason))
        return {}

    async def _release(self, request: web.Request) -> Answer:
        body = await _body(request)
        journals_in = body.get("journals_in")
        is_cleared = await self._service.ends.release(
            _key(request),
            int(body["epoch"]),
            None if journals_in is None else str(journals_in),
        )
        return {"cleared": is_cleared}

    async def _chunks(self, request: web.Request) -> Answer:
        body = await _body(request)
        source = self._service.ends.source(_key(request), int(body["epoch"]))
        for order in body["orders"]:
            source.take(ChunkOrder.from_dict(order))
        return {}

    async def _outcomes(self, request: web.Request) -> Answer:
        # Another epoch's chunks have the same numbers.
        source = self._service.ends.source(_key(request), _number(request, "epoch", 0))
        wait_s = min(float(request.query.get("wait_s", "0")), _MAX_WAIT_S)
        last, outcomes = await source.outcomes(_number(request, "after", 0), wait_s)
        return {"last": last, "outcomes": [outcome.to_dict() for outcome in outcomes]}

    async def _waiting(self, request: web.Request) -> Answer:
        source = self._service.ends.source(_key(request), _number(request, "epoch", 0))
        return {"chunks": [list(identity) for identity in source.waiting()]}

    async def _store(self, request: web.Request) -> Answer:
        body = await _body(request)
        return await self._service.ends.store_verb(
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
            f"{request.method} {request.path} cannot be carried out as it was sent "
            f"({type(error).__name__}); the gateway's log says more"
        )
        return web.json_response(invalid.to_dict(), status=400)
    except web.HTTPException as error:
        unknown = ConfigurationInvalid(f"{request.method} {request.path}: {error.reason}")
        return web.json_response(unknown.to_dict(), status=error.status)
    except Exception as error:  # Else the caller would be told nothing but a status of 500.
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


def _number(request: web.Request, name: str, default: int) -> int:
    return int(request.query.get(name, default))
