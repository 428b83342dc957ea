"""The calls of the control API: parses and authorises requests, and calls the gateway.

The orchestrator may call everything except the verbs of a lead. A source gateway, which
may be a lead, may call only those verbs. Nothing here knows how a request came.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    InternalError,
    NotAuthorised,
    SkyplaneError,
    StaleEpoch,
    Stopped,
    StoreUnavailable,
)
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.common.schema import parsed
from skyplane_gateway.config import AttachOrder, Topology, TransferSpec
from skyplane_gateway.control.caller import Caller
from skyplane_gateway.service import GatewayService
from skyplane_gateway.source.chunk_orders import ChunkOrder
from skyplane_gateway.stores.base import ListedRows

log = logging.getLogger(__name__)

#: Longest wait of a long poll, whatever the caller asks for.
_MAX_WAIT_S: Final = 30.0

ControlResponse = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """One request.

    Attributes:
        key: of the transfer in its path; empty for other paths.
        listed: rows of a source that a caller in this process brings.
    """

    method: str
    path: str
    query: Mapping[str, str]
    key: str
    body: bytes
    caller: Caller
    listed: ListedRows | None = None


Handler = Callable[[ControlRequest], Awaitable[ControlResponse]]


class ControlCalls:
    """Maps requests to calls of one gateway."""

    def __init__(self, gateway: GatewayService) -> None:
        self._gateway = gateway
        orchestrator, lead, both = ("orchestrator",), ("lead",), ("orchestrator", "lead")
        #: (method, path) -> who may call, and the call; `{key}` stands for the key of a transfer.
        self.table: Mapping[tuple[str, str], tuple[Sequence[str], Handler]] = {
            ("GET", "/v1/status"): (both, self._status),
            ("GET", "/v1/log"): (orchestrator, self._log),
            ("PUT", "/v1/topology"): (orchestrator, self._topology),
            ("PUT", "/v1/plan"): (orchestrator, self._keep_plan),
            ("GET", "/v1/plan"): (orchestrator, self._plan),
            ("POST", "/v1/probe"): (orchestrator, self._probe),
            ("POST", "/v1/renew"): (both, self._renew),
            ("POST", "/v1/drain"): (orchestrator, self._drain),
            ("POST", "/v1/shutdown"): (orchestrator, self._shutdown),
            ("POST", "/v1/transfers/{key}"): (orchestrator, self._submit),
            ("GET", "/v1/transfers/{key}"): (orchestrator, self._transfer_status),
            ("POST", "/v1/transfers/{key}/attach"): (orchestrator, self._attach),
            ("POST", "/v1/transfers/{key}/credentials"): (orchestrator, self._credentials),
            ("GET", "/v1/transfers/{key}/report"): (orchestrator, self._report),
            ("POST", "/v1/transfers/{key}/cancel"): (orchestrator, self._cancel),
            ("POST", "/v1/transfers/{key}/stop"): (orchestrator, self._stop),
            ("POST", "/v1/transfers/{key}/release"): (both, self._release),
            ("POST", "/v1/transfers/{key}/chunks"): (lead, self._chunks),
            ("GET", "/v1/transfers/{key}/outcomes"): (lead, self._outcomes),
            ("GET", "/v1/transfers/{key}/chunks"): (lead, self._chunk_states),
            ("POST", "/v1/transfers/{key}/store"): (lead, self._store),
        }

    async def answer(
        self,
        method: str,
        target: str,
        body: bytes,
        caller: Callable[[], Caller],
        listed: ListedRows | None = None,
    ) -> tuple[int, ControlResponse]:
        """Status and document of the answer.

        Args:
            target: path and query, encoded.
            caller: tells who calls. Raises NotAuthorised.
            listed: see `ControlRequest`.
        """
        parts = urlsplit(target)
        words = parts.path.split("/")
        key = ""
        if words[:3] == ["", "v1", "transfers"] and len(words) > 3:
            key, words[3] = unquote(words[3]), "{key}"
        pattern = "/".join(words)
        if (method, pattern) not in self.table:
            is_known = any(path == pattern for _, path in self.table)
            status = HTTPStatus.METHOD_NOT_ALLOWED if is_known else HTTPStatus.NOT_FOUND
            unknown = ConfigurationInvalid(f"{method} {parts.path}: {status.phrase}")
            return status, unknown.to_dict()
        who, call = self.table[method, pattern]
        query, path = dict(parse_qsl(parts.query)), parts.path
        try:
            request = ControlRequest(method, path, query, key, body, caller(), listed)
            self._require_allowed(request, who)
            return HTTPStatus.OK, await self._in_service(call, request)
        except SkyplaneError as error:
            status = (
                HTTPStatus.UNPROCESSABLE_ENTITY
                if error.is_permanent
                else HTTPStatus.SERVICE_UNAVAILABLE
            )
            return status, error.to_dict()
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            log.exception("bad request %s %s", method, path)
            invalid = ConfigurationInvalid(
                f"{method} {path} is not a valid request "
                f"({type(error).__name__}); the gateway's log says more"
            )
            return HTTPStatus.BAD_REQUEST, invalid.to_dict()
        except Exception as error:  # A bare status 500 would tell the caller nothing.
            log.exception("%s %s failed", method, path)
            failed = InternalError.of(error, f"{method} {path}", "this gateway")
            return HTTPStatus.INTERNAL_SERVER_ERROR, failed.to_dict()

    def _require_allowed(self, request: ControlRequest, who: Sequence[str]) -> None:
        """Raises NotAuthorised."""
        caller = request.caller
        role = "orchestrator" if caller.is_orchestrator else "lead"
        if role not in who or (role == "lead" and not self._gateway.may_lead(caller.node)):
            raise NotAuthorised(
                f"{caller.node or 'the orchestrator'} may not call "
                f"{request.method} {request.path} on {self._gateway.config.node}"
            )

    async def _in_service(self, call: Handler, request: ControlRequest) -> ControlResponse:
        """The answer of a gateway that is not ending."""
        self._gateway.require_in_service()
        try:
            return await call(request)
        except StoreUnavailable:
            # The store may have carried out the request: the caller has to look.
            raise
        except (SkyplaneError, RuntimeError):
            # An error of a gateway that is ending says nothing about the transfer.
            self._gateway.require_in_service()
            raise

    # -- the gateway itself

    async def _status(self, request: ControlRequest) -> ControlResponse:
        return self._gateway.status()

    async def _log(self, request: ControlRequest) -> ControlResponse:
        return {"text": self._gateway.log_tail(_number(request, "max_bytes", 64 << 10))}

    async def _topology(self, request: ControlRequest) -> ControlResponse:
        self._gateway.apply_topology(Topology.from_dict(_body(request)))
        return {}

    async def _keep_plan(self, request: ControlRequest) -> ControlResponse:
        self._gateway.plan = _body(request)
        return {}

    async def _plan(self, request: ControlRequest) -> ControlResponse:
        return self._gateway.plan

    async def _probe(self, request: ControlRequest) -> ControlResponse:
        body = _body(request)
        report = await self._gateway.probe(int(body["route"]), float(body["seconds"]))
        return report.to_dict()

    async def _renew(self, request: ControlRequest) -> ControlResponse:
        lease_s = _body(request).get("lease_s")
        self._gateway.lease.renew(None if lease_s is None else float(lease_s))
        return {}

    async def _drain(self, request: ControlRequest) -> ControlResponse:
        unless_leading = bool(_body(request).get("unless_leading", False))
        return {"draining": self._gateway.drain(unless_leading=unless_leading)}

    async def _shutdown(self, request: ControlRequest) -> ControlResponse:
        self._gateway.request_shutdown("asked to by the orchestrator")
        return {}

    # -- transfers

    async def _attach(self, request: ControlRequest) -> ControlResponse:
        order = AttachOrder.from_dict(_body(request))
        await self._gateway.endpoints.attach(request.key, order)
        return {}

    async def _credentials(self, request: ControlRequest) -> ControlResponse:
        body = _body(request)
        return await self._gateway.endpoints.renew_credentials(
            request.key,
            epoch=int(body["epoch"]),
            side=body["side"],
            credentials=Credentials.from_dict(body["credentials"]),
        )

    async def _submit(self, request: ControlRequest) -> ControlResponse:
        body = _body(request)
        spec = TransferSpec.from_dict(body["spec"])
        return await self._gateway.leads.submit(
            request.key, epoch=int(body["epoch"]), spec=spec, listed=request.listed
        )

    async def _transfer_status(self, request: ControlRequest) -> ControlResponse:
        key, session = request.key, request.query.get("session", "")
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

    async def _report(self, request: ControlRequest) -> ControlResponse:
        lead = self._gateway.leads.transfer(request.key)
        # A report may have many pages, and a caller that reads them does not poll.
        self._gateway.lease.renew()
        self._gateway.pollers.note(request.key, request.query.get("session", ""))
        return lead.report.page(_number(request, "offset", 0))

    async def _cancel(self, request: ControlRequest) -> ControlResponse:
        await self._gateway.leads.cancel(request.key)
        return {}

    async def _stop(self, request: ControlRequest) -> ControlResponse:
        body = _body(request)
        kind = StaleEpoch if body.get("goes_on") else Stopped
        await self._gateway.leads.stop(request.key, kind(str(body["reason"])))
        return {}

    async def _release(self, request: ControlRequest) -> ControlResponse:
        body = _body(request)
        journals_in = body.get("journals_in")
        is_cleared = await self._gateway.endpoints.release(
            request.key, int(body["epoch"]), None if journals_in is None else str(journals_in)
        )
        return {"cleared": is_cleared}

    async def _chunks(self, request: ControlRequest) -> ControlResponse:
        body = _body(request)
        source = self._gateway.endpoints.source(request.key, int(body["epoch"]))
        for order in body["orders"]:
            source.take(ChunkOrder.from_dict(order))
        return {}

    async def _outcomes(self, request: ControlRequest) -> ControlResponse:
        # Every epoch numbers its chunks from the start.
        source = self._gateway.endpoints.source(request.key, _number(request, "epoch", 0))
        last, outcomes = await source.outcomes(_number(request, "after", 0), _wait_s(request))
        return {"last": last, "outcomes": [outcome.to_dict() for outcome in outcomes]}

    async def _chunk_states(self, request: ControlRequest) -> ControlResponse:
        source = self._gateway.endpoints.source(request.key, _number(request, "epoch", 0))
        return {"chunks": source.chunks()}

    async def _store(self, request: ControlRequest) -> ControlResponse:
        body = _body(request)
        return await self._gateway.endpoints.store_verb(
            request.key, int(body["epoch"]), body["verb"], body["arguments"]
        )


def _body(request: ControlRequest) -> dict[str, Any]:
    body = parsed(request.body, "the request body")
    if not isinstance(body, dict):
        raise ConfigurationInvalid("the request body must be a JSON object")
    return body


def _wait_s(request: ControlRequest) -> float:
    return min(float(request.query.get("wait_s", "0")), _MAX_WAIT_S)


def _number(request: ControlRequest, name: str, default: int) -> int:
    return int(request.query.get(name, default))
