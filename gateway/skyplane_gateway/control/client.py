"""The control API's client: synchronous, thread-safe, standard library only.

The orchestrator uses it, and the lead from threads. Every connection checks the gateway:
its certificate must come from the fleet's authority and carry the expected name.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

from skyplane_gateway.common.dialing import Dial, directly
from skyplane_gateway.common.errors import (
    GatewayError,
    GatewayUnreachable,
    NotAuthorised,
    from_dict,
)
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.config import AttachOrder, ProbeReport, Topology, TransferSpec
from skyplane_gateway.control.caller import ORCHESTRATOR, Caller
from skyplane_gateway.control.connection_pool import (
    ConnectionPool,
    Connections,
    is_certificate_refused,
    is_out_of_date,
)
from skyplane_gateway.stores.base import ListedRows

if TYPE_CHECKING:
    from skyplane_gateway.control.in_memory import MemoryConnections

#: The host of gateways of this process; see `in_memory`.
IN_MEMORY: Final = "in-memory"

#: Timeout of a verb on the destination, and the shortest one of a verb that reads an object.
_VERB_TIMEOUT_S: Final = 30.0
_READ_TIMEOUT_S: Final = 900.0
#: Slowest read of an object that the timeout allows.
_READ_BYTES_PER_S: Final = 10e6


def is_slow_verb(verb: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the sink or its store may read a whole object, which takes long."""
    return verb in ("complete", "copy_part") or (
        verb == "head" and bool(arguments.get("checksum", False))
    )


def verb_timeout_s(verb: str, arguments: Mapping[str, Any]) -> float:
    """How long a lead waits for a sink to run a verb on the destination."""
    if is_slow_verb(verb, arguments):
        size_bytes: int = arguments["size_bytes"]
        return max(_READ_TIMEOUT_S, size_bytes / _READ_BYTES_PER_S)
    return _VERB_TIMEOUT_S


#: How calls end that a gateway cuts off.
_ENDED: Final = (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)
_CLOCKS: Final = (
    "the clocks of the two machines differ by an hour or more: compare them, and set both by NTP"
)


class ControlClient:
    """Calls one gateway.

    Args:
        host, port: address of its control API.
        context: TLS context with the caller's certificate and the fleet's authority; None for a
            gateway of this process.
        expected_uri: the URI name that the gateway's certificate must carry.
        timeout_s: longest wait for a connection and for a response.
        wrong_peer_error: raised when the peer does not prove to be that gateway. The default
            suits a caller with a wrong configuration. A caller that knows the fleet passes
            `AddressTaken`: the gateway is gone.
        session: tells this caller apart from others that follow the same transfer.
        caller: who calls a gateway of this process; others tell by the certificate.
        dial: connects with the gateway.

    Raises (every method):
        GatewayUnreachable: no connection, no response, or the connection broke.
        NotAuthorised: the gateway refuses the caller's certificate; see `wrong_peer_error`.
        SkyplaneError: the gateway's own error, with its class.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | None,
        expected_uri: str,
        timeout_s: float = 10.0,
        *,
        caller: Caller = ORCHESTRATOR,
        wrong_peer_error: type[GatewayError] = NotAuthorised,
        session: str = "",
        dial: Dial = directly,
    ) -> None:
        self.host = host
        self.port = port
        self._timeout_s = timeout_s
        self._wrong_peer_error = wrong_peer_error
        self._session = session
        self._pool: Connections
        self._memory: MemoryConnections | None = None
        if context is None:
            from skyplane_gateway.control.in_memory import MemoryConnections

            self._pool = self._memory = MemoryConnections(port, caller)
        else:
            self._pool = ConnectionPool(host, port, context, expected_uri, wrong_peer_error, dial)

    # -- the gateway itself

    def status(self) -> dict[str, Any]:
        """State, lease, routes with byte counters, transfers."""
        return self._call("GET", "/v1/status")

    def put_topology(self, topology: Topology) -> None:
        """Set the gateway's routes; it connects to its neighbours. Idempotent."""
        self._call("PUT", "/v1/topology", topology.to_dict())

    def put_plan(self, plan: Mapping[str, Any]) -> None:
        """Keep the plan of the fleet in the gateway, which does not read it. Idempotent."""
        self._call("PUT", "/v1/plan", plan)

    def plan(self) -> dict[str, Any]:
        """The plan that the gateway keeps; empty if it has none."""
        return self._call("GET", "/v1/plan")

    def probe(self, route: int, seconds: float) -> ProbeReport:
        """Have a source send over a route for so many seconds.

        Raises Overloaded where the gateway is part of a transfer.
        """
        body = {"route": route, "seconds": seconds}
        answer = self._call("POST", "/v1/probe", body, timeout_s=seconds + self._timeout_s)
        return ProbeReport.from_dict(answer)

    def renew(self, lease_s: float | None = None) -> None:
        """Renew the lease, for the configured time when None."""
        self._call("POST", "/v1/renew", {"lease_s": lease_s})

    def drain(self, *, unless_leading: bool = False) -> bool:
        """Refuse new transfers from now on; returns whether the gateway does.

        Args:
            unless_leading: change nothing while the gateway leads a transfer.
        """
        body = {"unless_leading": unless_leading}
        return bool(self._call("POST", "/v1/drain", body).get("draining", True))

    def shutdown(self) -> None:
        """Cancel transfers, abort open uploads and end. Returns before the process has ended."""
        self._call("POST", "/v1/shutdown", {})

    def log_tail(self, max_bytes: int = 64 << 10) -> str:
        """The end of the gateway's log."""
        return str(self._call("GET", f"/v1/log?max_bytes={max_bytes}")["text"])

    # -- transfers: the orchestrator's verbs

    def attach(self, transfer_key: str, order: AttachOrder) -> None:
        """Give one side its store; see `TransferSides.attach`."""
        path = _transfer_path(transfer_key, "attach")
        self._call("POST", path, order.to_dict(), timeout_s=60.0)

    def renew_credentials(
        self, transfer_key: str, *, epoch: int, side: str, credentials: Credentials
    ) -> None:
        """Give an attached side fresh credentials, in its current epoch."""
        body = {"epoch": epoch, "side": side, "credentials": credentials.to_dict()}
        self._call("POST", _transfer_path(transfer_key, "credentials"), body)

    def submit(
        self, transfer_key: str, *, epoch: int, spec: TransferSpec, listed: ListedRows | None = None
    ) -> dict[str, Any]:
        """Ask the gateway to lead the transfer; joins it when it already runs.

        Args:
            listed: rows of the source that a gateway of this process need not list; others
                list everything.
        """
        body = {"epoch": epoch, "spec": spec.to_dict()}
        pool = self._pool
        if listed is not None and self._memory is not None:
            pool = self._memory.bringing(listed)
        # The new lead first calls the other gateways, and one of them may hang.
        return self._call("POST", _transfer_path(transfer_key), body, timeout_s=60.0, pool=pool)

    def transfer_status(
        self, transfer_key: str, *, renew: bool = True, wait_s: float = 0.0
    ) -> dict[str, Any]:
        """The small status document; also renews the lead's lease.

        Args:
            renew: False for a caller that does not follow the transfer (any longer).
            wait_s: longest wait for the end, at most half the timeout of a call. The document
                has `waited` if the gateway knows this wait.
        """
        # A gateway that hangs is noticed as soon as without a wait.
        wait_s = min(wait_s, self._timeout_s / 2)
        query = f"?renew={int(renew)}&session={self._session}&wait_s={wait_s}"
        return self._call("GET", _transfer_path(transfer_key) + query)

    def report(self, transfer_key: str, *, offset: int = 0) -> dict[str, Any]:
        """A page of the per-object report: `rows`, `next_offset`, `complete`."""
        query = f"?offset={offset}&session={self._session}"
        return self._call("GET", _transfer_path(transfer_key, "report") + query)

    def cancel(self, transfer_key: str) -> None:
        """Stop the transfer and abort its uploads. Idempotent."""
        self._call("POST", _transfer_path(transfer_key, "cancel"), {}, timeout_s=60.0)

    def stop(self, transfer_key: str, reason: str, *, goes_on: bool = False) -> None:
        """Fail the transfer for that reason, and keep its uploads for a resume. Idempotent.

        Args:
            goes_on: only this epoch is over; the caller submits the next one.
        """
        path = _transfer_path(transfer_key, "stop")
        self._call("POST", path, {"reason": reason, "goes_on": goes_on}, timeout_s=60.0)

    def release(self, transfer_key: str, epoch: int, *, journals_in: str | None = None) -> bool:
        """Drop the stores and credentials of a transfer that ended in that epoch. Idempotent.

        A transfer that runs in a newer epoch keeps them.

        Args:
            journals_in: folder of its journals, to remove them: the transfer has succeeded,
                and the orchestrator knows it.

        Returns:
            Whether this gateway has removed the journals.
        """
        path = _transfer_path(transfer_key, "release")
        body = {"epoch": epoch, "journals_in": journals_in}
        return bool(self._call("POST", path, body, timeout_s=30.0)["cleared"])

    # -- transfers: the lead's verbs

    def dispatch(self, transfer_key: str, epoch: int, orders: Sequence[Mapping[str, Any]]) -> None:
        """Give a source chunks to read and send."""
        body = {"epoch": epoch, "orders": list(orders)}
        self._call("POST", _transfer_path(transfer_key, "chunks"), body)

    def outcomes(
        self, transfer_key: str, epoch: int, *, after: int, wait_s: float
    ) -> dict[str, Any]:
        """Ended chunks after sequence number `after`; waits up to `wait_s` for the first."""
        query = f"?epoch={epoch}&after={after}&wait_s={wait_s}"
        path = _transfer_path(transfer_key, "outcomes") + query
        return self._call("GET", path, timeout_s=wait_s + self._timeout_s)

    def chunks(self, transfer_key: str, epoch: int) -> dict[str, Any]:
        """`chunks`: the fields of a `ChunkState` for each order that a source has not ended."""
        return self._call("GET", _transfer_path(transfer_key, "chunks") + f"?epoch={epoch}")

    def store_verb(
        self, transfer_key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a verb on the destination, at a sink (see `Destination.run`)."""
        body = {"epoch": epoch, "verb": verb, "arguments": dict(arguments)}
        timeout_s = verb_timeout_s(verb, arguments)
        return self._call("POST", _transfer_path(transfer_key, "store"), body, timeout_s=timeout_s)

    # -- requests

    def close(self) -> None:
        """Close idle connections now, and others when their call ends."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        pool: Connections | None = None,
    ) -> dict[str, Any]:
        payload = None if body is None else json.dumps(body).encode()
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            status, text = (pool or self._pool).exchange(method, path, payload, timeout_s)
        except (http.client.HTTPException, OSError) as error:
            raise self._unreachable(error) from error
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict) or (status != http.client.OK and "code" not in document):
            raise GatewayError(
                f"{self.host}:{self.port} answered {status} with something that is not the "
                "control API's JSON; is another service listening there?"
            )
        if status != http.client.OK:
            raise from_dict(document)
        return document

    def _unreachable(self, error: Exception) -> GatewayError:
        address = f"{self.host}:{self.port}"
        is_wrong_peer = isinstance(error, ssl.SSLCertVerificationError)
        if is_wrong_peer or is_certificate_refused(error):
            kind = self._wrong_peer_error if is_wrong_peer else NotAuthorised
            if is_out_of_date(error):
                return kind(
                    f"certificates of the gateway at {address} and of this process are not valid "
                    f"now ({error}): {_CLOCKS}"
                )
            return kind(
                f"the gateway at {address} and this process do not trust each other "
                f"({error}); both need the same fleet secret and fleet, or another process "
                f"has this address now, or {_CLOCKS}"
            )
        # str() of an OSError starts with its number.
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        # A refused certificate of TLS 1.3 shows as a connection that ends.
        clocks = f", or {_CLOCKS}" if isinstance(error, _ENDED) else ""
        return GatewayUnreachable(
            f"the gateway at {address} does not answer ({reason}); "
            f"it may have ended, or a firewall blocks the connection{clocks}"
        )


def _transfer_path(transfer_key: str, verb: str = "") -> str:
    path = "/v1/transfers/" + quote(transfer_key, safe="")
    return f"{path}/{verb}" if verb else path
