"""HTTPS connections to one gateway, reused between calls. Thread-safe."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from typing import Any, Final, Protocol

from skyplane_gateway.common.dialing import Dial
from skyplane_gateway.common.errors import GatewayError

#: Longest response that is read. A page of a report or of a listing is far smaller.
MAX_RESPONSE_BYTES: Final = 16 << 20

#: Idle connections kept for the next call, and for how long: Azure's load balancers forget idle
#: ones after 4 minutes, AWS's after 350 s, and Google's firewalls after 10 minutes.
_MAX_IDLE: Final = 8
_MAX_IDLE_S: Final = 200.0

#: Alerts by which a peer refuses a certificate (RFC 8446 section 6.2), as OpenSSL names them.
#: OpenSSL's codes: not yet valid, expired.
_NOT_NOW: Final = (9, 10)

_REFUSAL_ALERTS: Final = frozenset(
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


def is_certificate_refused(error: Exception) -> bool:
    """Whether the peer refused our certificate. Other TLS errors come from another service."""
    return isinstance(error, ssl.SSLError) and (error.reason or "") in _REFUSAL_ALERTS


def is_out_of_date(error: Exception) -> bool:
    """Whether one side takes a certificate for expired, or for one of the future."""
    is_ours = isinstance(error, ssl.SSLCertVerificationError) and error.verify_code in _NOT_NOW
    return is_ours or getattr(error, "reason", None) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"


class _Connection(http.client.HTTPSConnection):
    """An HTTPS connection that checks the peer's URI name in place of its host name."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        expected_uri: str,
        wrong_peer_error: type[GatewayError],
        dial: Dial,
        timeout_s: float,
    ) -> None:
        super().__init__(host, port, context=context)
        self._tls = context
        self._dial = dial
        self.timeout_s = timeout_s
        self.used_at_s = 0.0
        self._expected_uri = expected_uri
        self._wrong_peer_error = wrong_peer_error

    def connect(self) -> None:
        plain = self._dial(self.host, self.port, self.timeout_s)
        stream = self._tls.wrap_socket(plain, server_hostname=self.host)
        self.sock = stream
        certificate: dict[str, Any] = dict(stream.getpeercert() or {})
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
        if self._expected_uri not in names:
            self.close()
            raise self._wrong_peer_error(
                f"{self.host}:{self.port} answers as {', '.join(names) or 'nobody'}, not as "
                f"{self._expected_uri}: another process has this address now, or the fleet "
                "document belongs to another fleet"
            )


class Connections(Protocol):
    """See `ConnectionPool`."""

    def exchange(
        self, method: str, path: str, payload: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]: ...

    def close(self) -> None: ...


class ConnectionPool:
    """Sends requests to one gateway, whose certificate must carry the name `expected_uri`."""

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        expected_uri: str,
        wrong_peer_error: type[GatewayError],
        dial: Dial,
    ) -> None:
        self._peer = (host, port, context, expected_uri, wrong_peer_error, dial)
        self._idle: list[_Connection] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def exchange(
        self, method: str, path: str, payload: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """Send one request; status and body of the response. A longer body is cut.

        Raises:
            HTTPException, OSError: no connection, no response, or the connection broke.
            GatewayError: the peer is another gateway (`wrong_peer_error`).
        """
        connection = self._take_idle(timeout_s)
        if connection is not None:
            try:
                return self._exchange_on(connection, method, path, payload)
            except TimeoutError:
                self._drop_idle()  # A firewall that has forgotten one may have forgotten all.
                raise
            except (http.client.HTTPException, OSError):
                # The gateway has most likely closed the idle connection. Every verb is
                # idempotent, so one retry on a fresh connection is safe.
                pass
        return self._exchange_on(_Connection(*self._peer, timeout_s), method, path, payload)

    def close(self) -> None:
        """Close idle connections now, and others when their call ends."""
        self._is_closed = True
        self._drop_idle()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange_on(
        self, connection: _Connection, method: str, path: str, payload: bytes | None
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"} if payload is not None else {}
        try:
            connection.request(method, path, body=payload, headers=headers)
            response = connection.getresponse()
            body = response.read(MAX_RESPONSE_BYTES + 1)
            is_cut = len(body) > MAX_RESPONSE_BYTES
            if not is_cut and response.length != 0 and not response.chunked:
                # A read with a limit does not report an early end of the stream.
                raise http.client.IncompleteRead(body, response.length)
        except (http.client.HTTPException, OSError):
            connection.close()
            raise
        if is_cut:
            connection.close()  # The rest of the response is still on its way.
        else:
            self._give_back(connection)
        return response.status, body

    def _take_idle(self, timeout_s: float) -> _Connection | None:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None and time.monotonic() - connection.used_at_s > _MAX_IDLE_S:
            connection.close()
            return self._take_idle(timeout_s)
        if connection is not None:
            connection.timeout_s = timeout_s
            if isinstance(connection.sock, socket.socket):
                connection.sock.settimeout(timeout_s)
        return connection

    def _give_back(self, connection: _Connection) -> None:
        with self._lock:
            is_kept = not self._is_closed and len(self._idle) < _MAX_IDLE
            if is_kept and connection.sock is not None:
                connection.used_at_s = time.monotonic()
                self._idle.append(connection)
                return
        connection.close()
