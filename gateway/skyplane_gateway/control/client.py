"""The control API's client: synchronous, thread-safe, standard library only.

Used by the orchestrator's side and, from threads, by the lead. Every call checks that
the gateway at the other end is the one that was meant: the certificate must come from
the fleet's authority and carry the expected name.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

from skyplane_gateway.config import Topology, TransferSpec
from skyplane_gateway.errors import (
    GatewayError,
    GatewayUnreachable,
    NotAuthorised,
    from_dict,
)
from skyplane_gateway.objects import Credentials, StoreSpec

#: Longest answer that is read. A page of a report or a listing stays far below.
MAX_ANSWER_BYTES: Final = 16 << 20

#: Alerts by which a peer refuses a certificate (RFC 8446 section 6.2), in OpenSSL's words.
_REFUSALS: Final = frozenset(
    {
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_REVOKED",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "TLSV1_ALERT_UNKNOWN_CA",
        "TLSV1_ALERT_ACCESS_DENIED",
        "TLSV1_ALERT_DECRYPT_ERROR",
        "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    }
)

#: Longest wait for a verb on the destination, and at least for one that may read an object.
_VERB_S: Final = 30.0
_COMPLETE_S: Final = 900.0
#: The slowest store that is waited for when it is read.
_READ_BACK_BYTES_PER_S: Final = 10e6

#: Idle connections kept for the next call.
_POOL_SIZE: Final = 8


def verb_limit_s(verb: str, arguments: Mapping[str, Any]) -> float:
    """How long a lead waits for a sink's answer to a verb on the destination, in seconds."""
    if verb == "complete" or (verb == "head" and arguments.get("checksum", False)):
        # It may read the object, which takes as long as that is large.
        size_bytes: int = arguments["size_bytes"]
        return max(_COMPLETE_S, size_bytes / _READ_BACK_BYTES_PER_S)
    return _VERB_S


class _Connection(http.client.HTTPSConnection):
    """An HTTPS connection that compares the peer's URI name instead of its host name."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        expected_uri: str,
        timeout_s: float,
        if_stranger: type[GatewayError],
    ) -> None:
        super().__init__(host, port, context=context, timeout=timeout_s)
        self._expected_uri = expected_uri
        self._if_stranger = if_stranger

    def connect(self) -> None:
        super().connect()
        certificate: dict[str, Any] = dict(self.sock.getpeercert() or {})
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        if self._expected_uri not in names:
            self.close()
            raise self._if_stranger(
                f"{self.host}:{self.port} answers as {', '.join(names) or 'nobody'}, "
                f"not as {self._expected_uri}; its address was taken over or the fleet "
                "document is of another fleet"
            )


class ControlClient:
    """Calls one gateway.

    Args:
        host, port: address of its control API.
        context: TLS context with the caller's certificate and the fleet's authority.
        expected_uri: the URI name that the gateway's certificate must carry.
        timeout_s: longest wait for a connection and for an answer.
        if_stranger: what it is called when whoever answers is not proved to be that gateway:
            `NotAuthorised`, unless the caller knows the fleet, so that it cannot be a mistake
            of its own: then the gateway is gone, `AddressTaken`.
        session: tells the caller apart from others that follow the same transfer.

    Raises (every method):
        GatewayUnreachable: no connection, no answer, or the connection broke.
        NotAuthorised: the gateway does not accept the caller's certificate; see `if_stranger`.
        SkyplaneError: what the gateway answered, rebuilt as the leaf that it raised.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        expected_uri: str,
        timeout_s: float = 10.0,
        *,
        if_stranger: type[GatewayError] = NotAuthorised,
        session: str = "",
    ) -> None:
        self.host = host
        self.port = port
        self._context = context
        self._expected_uri = expected_uri
        self._timeout_s = timeout_s
        self._if_stranger = if_stranger
        self._session = session
        self._idle: list[_Connection] = []
        self._is_closed = False
        self._lock = threading.Lock()

    # -- the gateway itself

    def status(self) -> dict[str, Any]:
        """State, lease, routes with byte counters, transfers."""
        return self._call("GET", "/v1/status")

    def put_topology(self, topology: Topology) -> None:
        """Tell the gateway its routes; it connects to its neighbours. Idempotent."""
        self._call("PUT", "/v1/topology", topology.to_dict())

    def renew(self, lease_s: float | None = None) -> None:
        """Renew the lease, for the configured time when None."""
        self._call("POST", "/v1/renew", {"lease_s": lease_s})

    def drain(self, *, unless_leading: bool = False) -> bool:
        """Refuse new transfers from now on; whether it is so.

        Args:
            unless_leading: not while the gateway leads one.
        """
        body = {"unless_leading": unless_leading}
        return bool(self._call("POST", "/v1/drain", body).get("draining", True))

    def shutdown(self) -> None:
        """Cancel what runs, abort open uploads, end. Returns before the process is gone."""
        self._call("POST", "/v1/shutdown", {})

    def log_tail(self, max_bytes: int = 64 << 10) -> str:
        """The end of the gateway's log."""
        return str(self._call("GET", f"/v1/log?max_bytes={max_bytes}")["text"])

    # -- transfers: the orchestrator's verbs

    def attach(
        self,
        transfer_key: str,
        *,
        epoch: int,
        side: str,
        store: StoreSpec,
        credentials: Credentials | None,
        verify: str = "stored",
    ) -> dict[str, Any]:
        """Hand a source or sink (`side`) its store and its credentials; they stay in memory."""
        body = {
            "epoch": epoch,
            "side": side,
            "verify": verify,
            "store": store.to_dict(),
            "credentials": credentials.to_dict() if credentials is not None else None,
        }
        return self._call("POST", _transfer_path(transfer_key, "attach"), body, timeout_s=60.0)

    def renew_credentials(
        self, transfer_key: str, *, epoch: int, side: str, credentials: Credentials
    ) -> None:
        """Give an end that is attached fresh credentials, in the epoch in which it is."""
        body = {"epoch": epoch, "side": side, "credentials": credentials.to_dict()}
        self._call("POST", _transfer_path(transfer_key, "credentials"), body)

    def submit(self, transfer_key: str, *, epoch: int, spec: TransferSpec) -> dict[str, Any]:
        """Ask the gateway to lead; joins the transfer when it runs already."""
        body = {"epoch": epoch, "spec": spec.to_dict()}
        # The new lead first asks the other gateways, and one of them may be asleep.
        return self._call("POST", _transfer_path(transfer_key), body, timeout_s=60.0)

    def transfer_status(self, transfer_key: str, *, renew: bool = True) -> dict[str, Any]:
        """The small status document; also renews the lead's lease.

        Args:
            renew: False for who does not follow the transfer, or no longer.
        """
        query = f"?renew={int(renew)}&session={self._session}"
        return self._call("GET", _transfer_path(transfer_key) + query)

    def report(self, transfer_key: str, *, offset: int = 0) -> dict[str, Any]:
        """A page of the per-object report: `rows`, `next_offset`, `complete`."""
        query = f"?offset={offset}&session={self._session}"
        return self._call("GET", _transfer_path(transfer_key, "report") + query)

    def cancel(self, transfer_key: str) -> None:
        """Stop the transfer and abort what it began. Idempotent."""
        self._call("POST", _transfer_path(transfer_key, "cancel"), {}, timeout_s=60.0)

    def stop(self, transfer_key: str, reason: str) -> None:
        """Fail the transfer for that reason and keep what it began. Idempotent."""
        path = _transfer_path(transfer_key, "stop")
        self._call("POST", path, {"reason": reason}, timeout_s=60.0)

    def release(self, transfer_key: str, epoch: int, *, journals_in: str | None = None) -> bool:
        """Forget the stores and credentials of a transfer that ended in that epoch; one that
        has gone on in a newer epoch keeps them. Idempotent.

        Args:
            journals_in: the folder of its journals, which are to be removed: it succeeded,
                and somebody has heard of it.

        Returns:
            Whether this gateway has removed them.
        """
        path = _transfer_path(transfer_key, "release")
        body = {"epoch": epoch, "journals_in": journals_in}
        return bool(self._call("POST", path, body, timeout_s=30.0)["cleared"])

    # -- transfers: what the lead asks of the others

    def dispatch(self, transfer_key: str, epoch: int, orders: Sequence[Mapping[str, Any]]) -> None:
        """Give a source chunks to read and send."""
        body = {"epoch": epoch, "orders": list(orders)}
        self._call("POST", _transfer_path(transfer_key, "chunks"), body)

    def outcomes(
        self, transfer_key: str, epoch: int, *, after: int, wait_s: float
    ) -> dict[str, Any]:
        """Ended chunks with a sequence number above `after`; waits for one up to `wait_s`."""
        query = f"?epoch={epoch}&after={after}&wait_s={wait_s}"
        path = _transfer_path(transfer_key, "outcomes") + query
        return self._call("GET", path, timeout_s=wait_s + self._timeout_s)

    def waiting(self, transfer_key: str, epoch: int) -> dict[str, Any]:
        """`chunks`: (chunk, attempt) of orders that wait at a source for its store."""
        path = _transfer_path(transfer_key, "waiting") + f"?epoch={epoch}"
        return self._call("GET", path)

    def store_verb(
        self, transfer_key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a verb on the destination, at a sink (see `Destination.run`)."""
        body = {"epoch": epoch, "verb": verb, "arguments": dict(arguments)}
        limit_s = verb_limit_s(verb, arguments)
        return self._call("POST", _transfer_path(transfer_key, "store"), body, timeout_s=limit_s)

    # -- plumbing

    def close(self) -> None:
        """Close the connections: idle ones now, others when their call has ended."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        payload = None if body is None else json.dumps(body).encode()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        connection, fresh = self._take(limit_s)
        try:
            status, text = self._exchange(connection, method, path, payload)
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            if fresh or isinstance(error, TimeoutError):
                raise self._unreachable(error) from error
            # Most likely the gateway had closed the idle connection; every verb may be
            # repeated, so asking once more on a fresh one is safe.
            return self._retry_fresh(method, path, payload, limit_s)
        return self._finish(connection, status, text)

    def _retry_fresh(
        self, method: str, path: str, payload: bytes | None, limit_s: float
    ) -> dict[str, Any]:
        connection = self._new(limit_s)
        try:
            status, text = self._exchange(connection, method, path, payload)
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            raise self._unreachable(error) from error
        return self._finish(connection, status, text)

    def _finish(self, connection: _Connection, status: int, text: bytes) -> dict[str, Any]:
        if len(text) > MAX_ANSWER_BYTES:
            connection.close()  # The rest of the answer is still on its way.
        else:
            self._give_back(connection)
        return self._answer(status, text)

    @staticmethod
    def _exchange(
        connection: _Connection, method: str, path: str, payload: bytes | None
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} if payload is not None else {}
        connection.request(method, path, body=payload, headers=headers)
        response = connection.getresponse()
        text = response.read(MAX_ANSWER_BYTES + 1)
        if len(text) <= MAX_ANSWER_BYTES and response.length != 0 and not response.chunked:
            # A bounded read says nothing of an end that came too early.
            raise http.client.IncompleteRead(text, response.length)
        return response.status, text

    def _answer(self, status: int, text: bytes) -> dict[str, Any]:
        try:
            document = json.loads(text) if len(text) <= MAX_ANSWER_BYTES else None
        except ValueError:
            document = None
        if not isinstance(document, dict) or (status != http.client.OK and "code" not in document):
            raise GatewayError(
                f"{self.host}:{self.port} answered {status} with something that is not the "
                "control API's JSON; is another service listening there?"
            )
        if status != http.client.OK:
            raise from_dict(document)
        return document

    def _new(self, timeout_s: float) -> _Connection:
        return _Connection(
            self.host,
            self.port,
            self._context,
            self._expected_uri,
            timeout_s,
            self._if_stranger,
        )

    def _take(self, timeout_s: float) -> tuple[_Connection, bool]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            return self._new(timeout_s), True
        connection.timeout = timeout_s
        if isinstance(connection.sock, socket.socket):
            connection.sock.settimeout(timeout_s)
        return connection, False

    def _give_back(self, connection: _Connection) -> None:
        with self._lock:
            is_kept = not self._is_closed and len(self._idle) < _POOL_SIZE
            if is_kept and connection.sock is not None:
                self._idle.append(connection)
                return
        connection.close()

    def _unreachable(self, error: Exception) -> GatewayError:
        address = f"{self.host}:{self.port}"
        is_stranger = isinstance(error, ssl.SSLCertVerificationError)
        if is_stranger or _is_refusal(error):
            kind = self._if_stranger if is_stranger else NotAuthorised
            return kind(
                f"the gateway at {address} and this process do not trust each other "
                f"({error}); both need the same fleet secret and fleet, or somebody else "
                "has taken the address"
            )
        # An OSError shows its number before its words.
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        return GatewayUnreachable(
            f"the gateway at {address} does not answer ({reason}); "
            "it may have ended, or a firewall is in between"
        )


def _is_refusal(error: Exception) -> bool:
    """Whether the peer does not take our certificate; other errors are of who speaks no TLS."""
    return isinstance(error, ssl.SSLError) and (error.reason or "") in _REFUSALS


def _transfer_path(transfer_key: str, verb: str = "") -> str:
    path = "/v1/transfers/" + quote(transfer_key, safe="")
    return f"{path}/{verb}" if verb else path
