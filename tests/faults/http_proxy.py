"""An HTTP/1.1 proxy before a real store that harms chosen requests and counts what is PUT.

`running(upstream)` gives a `FaultProxy` with threads of its own.

A request's body has a Content-Length. It passes in pieces, the answer's body at once. Every
request has a connection of its own to the store, so that no idle one can fail; the client's
stays open. Host passes unchanged, so signatures hold.
"""

from __future__ import annotations

import re
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tests.faults.http_rules import Rule, Schedule

_PIECE_BYTES: Final = 1 << 18
#: The path of a body for Google Cloud Storage; the query has the name.
_GCS_UPLOAD: Final = re.compile(r"upload/storage/v1/b/(?P<bucket>[^/]+)/o\Z")
#: Followed where no rule is due: nothing is harmed.
_PASS: Final = Rule("delay")


@dataclass(slots=True)
class Exchange:
    """One request as the proxy saw it.

    Attributes:
        fault: the action of the rule that it met, or None.
        status: what the client was answered; None when it was answered nothing.
        store_status: what the store answered; None when it was not asked, or did not.
        request_bytes: of the body, as it came from the client.
        reply_bytes: of the body, as they went to the client.
    """

    method: str
    target: str
    fault: str | None = None
    status: int | None = None
    store_status: int | None = None
    request_bytes: int = 0
    reply_bytes: int = 0

    @property
    def key(self) -> str:
        """`bucket/key`, decoded."""
        return unquote(self.target.partition("?")[0].lstrip("/"))

    @property
    def written_key(self) -> str:
        """`bucket/key` of the object whose bytes the request carries; empty if it carries none."""
        if self.method == "POST" and (found := _GCS_UPLOAD.match(self.key)):
            query = parse_qs(self.target.partition("?")[2])
            return "/".join((found["bucket"], *query.get("name", ())))
        is_body = self.method == "PUT" and "comp=blocklist" not in self.target
        return self.key if is_body and "/" in self.key else ""


@dataclass
class Log:
    """What went through. Read it when the transfer is over."""

    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def put_bytes_by_key(self) -> Counter[str]:
        """Body bytes that clients sent for objects, parts and refused attempts among them."""
        counts: Counter[str] = Counter()
        for each in list(self.exchanges):
            if key := each.written_key:
                counts[key] += each.request_bytes
        return counts

    @property
    def put_bytes(self) -> int:
        return self.put_bytes_by_key.total()


class FaultProxy(ThreadingHTTPServer):
    """See the module. Its methods may be called from any thread."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: str, rules: list[Rule] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.schedule = Schedule(list(rules or []))
        self.log = Log()
        self.released = threading.Event()
        self.is_dropped = False
        self._clients: set[socket.socket] = set()

    def release(self, *, drop: bool = False) -> None:
        """Release the requests that `hold` rules hold; the rules hold no more.

        Args:
            drop: close their connections, so that the store never gets them.
        """
        self.is_dropped = drop
        self.released.set()

    def close_clients(self) -> None:
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close only: a FIN that is sent first would hide a reset."""
        self._clients.discard(request)
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A broken client or store ends its connection; the test sees that in its own store."""
        if not isinstance(sys.exception(), (OSError, HTTPException)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """The connection of one client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultProxy
    exchange: Exchange

    def do_GET(self) -> None:
        target = self.requestline.split(" ")[1]
        rule = self.server.schedule.due(self.command, target, self.headers.items())
        self.exchange = Exchange(self.command, target, rule.action if rule else None)
        self.server.log.exchanges.append(self.exchange)
        if not self._follow(rule or _PASS):
            self.close_connection = True

    do_DELETE = do_HEAD = do_POST = do_PUT = do_GET

    def _follow(self, rule: Rule) -> bool:
        """Carry the request out as the rule has it; whether the connection stays open."""
        body: Iterable[bytes] = self._body()
        if rule.action == "drop-request":
            self._discard(body)
            return False
        if rule.action == "answer" and not rule.forward:
            is_read = self._discard(body)
            self.close_connection |= not is_read
            self._write(rule.status, rule.headers, rule.body)
            return is_read
        if rule.action == "hold" and not self.server.released.is_set():
            # Clients do not wait long while nobody reads.
            body = list(body)
            self.server.released.wait()
            if self.server.is_dropped:
                return False
        time.sleep(rule.delay_s)
        return self._forward(rule, body)

    def handle_expect_100(self) -> bool:
        """The client is told to continue when its body is read."""
        return True

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Expect"):
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        left = int(self.headers.get("Content-Length", "0"))
        while left > 0:
            piece = self.rfile.read(min(left, _PIECE_BYTES))
            if not piece:
                raise ConnectionError(f"the body ended {left} bytes early")
            left -= len(piece)
            self.exchange.request_bytes += len(piece)
            yield piece

    def _discard(self, body: Iterable[bytes]) -> bool:
        """Read the body; False when none comes, since the client was not told to continue."""
        if self.headers.get("Expect"):
            return False
        for _ in body:
            pass
        return True

    def _forward(self, rule: Rule, body: Iterable[bytes]) -> bool:
        dropped = {"expect"}
        if rule.action == "whole" and not self._signs_range():
            dropped.add("range")
        headers = [pair for pair in self.headers.items() if pair[0].lower() not in dropped]
        with closing(HTTPConnection(self.server.upstream)) as store:
            store.putrequest(
                self.command, self.exchange.target, skip_host=True, skip_accept_encoding=True
            )
            for name, value in headers:
                store.putheader(name, value)
            store.endheaders()
            is_taken = _send(store, body)
            reply = store.getresponse()
            self.exchange.store_status = reply.status
            answer = reply.read()
        return self._reply(rule, reply.status, reply.getheaders(), answer) and is_taken

    def _signs_range(self) -> bool:
        """Whether a request without its Range would be refused (AWS signature version 4)."""
        _, _, signed = self.headers.get("Authorization", "").partition("SignedHeaders=")
        return "range" in signed.partition(",")[0].split(";")

    def _reply(
        self, rule: Rule, status: int, headers: Sequence[tuple[str, str]], body: bytes
    ) -> bool:
        """Pass the store's answer on, or what the rule makes of it; False: close the connection."""
        if rule.action == "answer":
            self._write(rule.status, rule.headers, rule.body)
            return True
        if rule.action == "reset":
            # Closing now sends RST: nothing lingers.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if rule.action in ("drop-reply", "reset"):
            return False
        if rule.action == "flip" and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        if rule.action == "decompress":
            return self._reply_decompressed(status, headers, body)
        if rule.action == "rewrite":
            body = re.sub(rule.pattern, rule.replacement, body, flags=re.DOTALL)
        if rule.action == "whole" and status == 206:
            # The store was asked for the range all the same; only its answer says otherwise.
            status = 200
            headers = [pair for pair in headers if pair[0] != "Content-Range"]
        is_cut = rule.action == "truncate"
        self._write(status, headers, body, rule.keep_bytes if is_cut else None)
        return not is_cut

    def _reply_decompressed(
        self, status: int, headers: Sequence[tuple[str, str]], body: bytes
    ) -> bool:
        dropped = {"content-length"}
        is_gzip = any(pair == ("content-encoding", "gzip") for pair in _lowered(headers))
        is_taken = "gzip" in self.headers.get("Accept-Encoding", "")
        if status not in (200, 206) or is_gzip == is_taken:
            self._write(status, headers, body)
            return True
        if is_gzip:
            dropped |= {"content-encoding", "content-range"}
            status, body = 200, b"the whole object, decompressed"
        # Without a length, the end of the connection ends the body.
        self.close_connection = True
        kept = [pair for pair in headers if pair[0].lower() not in dropped]
        self._write(status, kept, body, has_length=False)
        return False

    def _write(
        self,
        status: int,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        keep_bytes: int | None = None,
        *,
        has_length: bool = True,
    ) -> None:
        dropped = ["connection", "transfer-encoding"]
        lines = [f"HTTP/1.1 {status} {responses.get(status, '')}"]
        if self.command == "HEAD" or status in (204, 304):
            body = b""
        elif has_length:
            dropped.append("content-length")
            lines.append(f"Content-Length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in headers if name.lower() not in dropped]
        sent = body[:keep_bytes]
        if self.close_connection:
            lines.append("Connection: close")
        # Noted first: once written, the client may look at the log.
        self.exchange.status, self.exchange.reply_bytes = status, len(sent)
        self.wfile.write("\r\n".join([*lines, "", ""]).encode("latin-1") + sent)


def _lowered(headers: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    return ((name.lower(), value.lower()) for name, value in headers)


def _send(store: HTTPConnection, body: Iterable[bytes]) -> bool:
    """Whether the store took all of it; it may answer and close before that."""
    for piece in body:
        try:
            store.send(piece)
        except ConnectionError:
            return False
    return True


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[None]:
    """A server answers in a thread until the block ends; it is closed then."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(10)


@contextmanager
def running(upstream: str, rules: list[Rule] | None = None) -> Iterator[FaultProxy]:
    """A proxy that serves until the block ends."""
    proxy = FaultProxy(upstream, rules)
    with serving(proxy):
        try:
            yield proxy
        finally:
            proxy.shutdown()
            proxy.release(drop=True)
            proxy.close_clients()
