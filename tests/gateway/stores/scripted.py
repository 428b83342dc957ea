"""A server that answers what a test has written, and records what it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3

from skyplane_gateway.stores import Credentials, StoreSpec
from skyplane_gateway.stores.registry import open_without_retries

CREDENTIALS = Credentials({"access_key_id": "test", "secret_access_key": "test-secret"})


def s3_client(url: str, credentials: Credentials = CREDENTIALS) -> Any:
    """Amazon's SDK, as a user who looks at the bucket has it."""
    keys = credentials["access_key_id"], credentials["secret_access_key"]
    return boto3.Session(*keys).client("s3", endpoint_url=url, region_name="us-east-1")


@dataclass(frozen=True)
class Reply:
    """One scripted answer. `declared` is a Content-Length that the body does not keep."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    declared: int | None = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class ScriptedServer(ThreadingHTTPServer):
    """Answers with scripted replies, in order, and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ScriptedHandler)
        self.replies: list[Reply] = []
        self.requests: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spec(self, **options: str) -> StoreSpec:
        return StoreSpec("s3", "bkt", self.url, "us-east-1", tuple(sorted(options.items())))

    def open(self, *replies: Reply, **options: str) -> Any:
        """A store on this server, which will get these replies. Any: tests look inside."""
        self.replies.extend(replies)
        return open_without_retries(self.spec(**options), CREDENTIALS)


class _ScriptedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ScriptedServer

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(self.command, self.path, headers, body))
        reply = self.server.replies.pop(0) if self.server.replies else Reply(599)
        # The handler's own has the headers Server and Date.
        is_dated = "Date" in reply.headers
        (self.send_response_only if is_dated else self.send_response)(reply.status)
        length = len(reply.body) if reply.declared is None else reply.declared
        for name, value in {"Content-Length": str(length), **reply.headers}.items():
            if value:  # Without one, the header is not sent.
                self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)
        self.close_connection = reply.declared is not None

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output quiet."""
