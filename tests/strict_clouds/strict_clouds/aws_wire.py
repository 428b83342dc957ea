"""Requests and answers of AWS's APIs as HTTP carries them, and a server for a WSGI application.

EC2 and STS speak the query protocol (a form, answered with XML), SSM and Service Quotas JSON.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final
from urllib.parse import parse_qsl

from werkzeug.serving import WSGIRequestHandler, make_server

Environment = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environment, StartResponse], Iterable[bytes]]

_SCOPE: Final = re.compile(r"Credential=([^/]*)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_NAMESPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
#: Prefixes of services in IAM, where they differ from those of signatures.
_IAM_NAMES: Final = {"service-quotas": "servicequotas", "servicequotas": "servicequotas"}


@dataclass(frozen=True)
class Request:
    """A request.

    Args:
        service: as IAM names it: `ec2`, `sts`, `ssm`, `servicequotas`.
        action: `RunInstances`.
        region: AWS's name.
        parameters: flat, with numbers from 1: `Filter.1.Name`; of JSON services as sent.
        body: as sent.
        key_id: the access key.
    """

    service: str
    action: str
    region: str
    parameters: Mapping[str, Any]
    body: bytes = field(default=b"", repr=False)
    key_id: str = ""

    def listed(self, name: str) -> list[str]:
        """The values of `name.1`, `name.2`, ..."""
        values: list[str] = []
        while (value := self.parameters.get(f"{name}.{len(values) + 1}")) is not None:
            values.append(str(value))
        return values

    def starting(self, *prefixes: str) -> dict[str, Any]:
        return {name: value for name, value in self.parameters.items() if name.startswith(prefixes)}


@dataclass(frozen=True)
class Answer:
    """An answer; `is_lost` breaks the connection in its place."""

    status: int
    body: bytes
    content_type: str
    is_lost: bool = False

    @property
    def text(self) -> str:
        return self.body.decode()


class AwsError(Exception):
    """A refusal, raised by a rule of a fake."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(code)
        self.code = code
        self.message = message or f"{code} (strict fake)"
        self.status = status


class _LostReply(ConnectionError):
    """The server closes the connection for it, without an answer."""


def read_request(environment: Environment) -> Request:
    """The request; its body stays readable."""
    length = int(environment.get("CONTENT_LENGTH") or 0)
    body = environment["wsgi.input"].read(length)
    found = _SCOPE.search(environment.get("HTTP_AUTHORIZATION", ""))
    key_id, region, service = found.groups() if found else ("", "", "")
    target = environment.get("HTTP_X_AMZ_TARGET", "")
    if target:
        action, parameters = target.rpartition(".")[2], json.loads(body or b"{}")
    else:
        parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
        action = parameters.get("Action", "")
    return Request(_IAM_NAMES.get(service, service), action, region, parameters, body, key_id)


def xml_answer(action: str, inner: str) -> Answer:
    """A success of EC2."""
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?><{action}Response xmlns="{_NAMESPACE}">'
        f"<requestId>strict</requestId>{inner}</{action}Response>"
    )
    return Answer(200, body.encode(), "text/xml")


def json_answer(value: Mapping[str, Any]) -> Answer:
    return Answer(200, json.dumps(value).encode(), "application/x-amz-json-1.1")


def error_answer(request: Request, error: AwsError) -> Answer:
    """A refusal in the form of the request's service; one without code is not of AWS."""
    if not error.code:
        return Answer(error.status, b"<!doctype html><title>Bad gateway</title>", "text/html")
    if request.service in ("ssm", "servicequotas"):
        told = {"__type": error.code, "message": error.message}
        return Answer(error.status, json.dumps(told).encode(), "application/x-amz-json-1.1")
    inside = f"<Error><Code>{error.code}</Code><Message>{error.message}</Message></Error>"
    if request.service == "s3":
        text = f"<Error><Code>{error.code}</Code><Message>{error.message}</Message></Error>"
    elif request.service == "ec2":
        text = f"<Response><Errors>{inside}</Errors><RequestID>strict</RequestID></Response>"
    else:
        text = f"<ErrorResponse>{inside}<RequestId>strict</RequestId></ErrorResponse>"
    return Answer(error.status, text.encode(), "text/xml")


def forwarded(application: Application, environment: Environment, body: bytes) -> Answer:
    """The answer of another application to the same request."""
    caught: dict[str, Any] = {}

    def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
        caught["status"] = int(status.split()[0])
        caught["headers"] = {name.lower(): value for name, value in headers}

    inner = {**environment, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    answered = b"".join(application(inner, start_response))
    kind = caught["headers"].get("content-type", "text/xml")
    return Answer(caught["status"], answered, kind)


def respond(answer: Answer, start_response: StartResponse) -> Iterable[bytes]:
    if answer.is_lost:
        raise _LostReply
    headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
    start_response(f"{answer.status} strict", headers)
    return [answer.body]


class _Handler(WSGIRequestHandler):
    """Logs nothing, and closes the connection for a lost answer."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        self.close_connection = True

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


@contextmanager
def serving(application: Application) -> Iterator[str]:
    """The address of a server for the application, on a port of its own."""
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
