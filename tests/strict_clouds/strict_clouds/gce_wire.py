"""Requests and answers of Compute Engine as HTTP carries them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from strict_clouds.aws_wire import Answer, Environment

PROJECT: Final = "strict-project"

#: Path behind the project -> method of the API. `{...}` are parameters.
_ROUTES: Final = {
    ("GET", ""): "projects.get",
    ("GET", "regions"): "regions.list",
    ("GET", "aggregated/instances"): "instances.aggregatedList",
    ("GET", "aggregated/disks"): "disks.aggregatedList",
    ("GET", "aggregated/machineTypes"): "machineTypes.aggregatedList",
    ("POST", "zones/{zone}/instances"): "instances.insert",
    ("GET", "zones/{zone}/instances/{instance}"): "instances.get",
    ("DELETE", "zones/{zone}/instances/{instance}"): "instances.delete",
    ("POST", "zones/{zone}/instances/{instance}/setLabels"): "instances.setLabels",
    ("GET", "zones/{zone}/instances/{instance}/serialPort"): "instances.getSerialPortOutput",
    ("DELETE", "zones/{zone}/disks/{disk}"): "disks.delete",
    ("POST", "zones/{zone}/operations/{operation}/wait"): "zoneOperations.wait",
    ("POST", "global/operations/{operation}/wait"): "globalOperations.wait",
    ("GET", "global/firewalls"): "firewalls.list",
    ("POST", "global/firewalls"): "firewalls.insert",
    ("GET", "global/firewalls/{firewall}"): "firewalls.get",
    ("PATCH", "global/firewalls/{firewall}"): "firewalls.patch",
    ("DELETE", "global/firewalls/{firewall}"): "firewalls.delete",
}
#: Of Compute Engine.
METHODS: Final = tuple(_ROUTES.values())
_PATTERNS: Final = [
    (verb, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), method)
    for (verb, path), method in _ROUTES.items()
]
_BASE: Final = re.compile(r"/compute/v1/projects/([^/]+)/?(.*)\Z")
_PERMISSIONS: Final = re.compile(r"/v1/projects/([^/:]+):testIamPermissions\Z")
_ACCOUNT_PERMISSIONS: Final = re.compile(
    r"/v1/projects/-/serviceAccounts/([^/:]+):testIamPermissions\Z"
)
TEST_PERMISSIONS: Final = "projects.testIamPermissions"
TEST_ACCOUNT_PERMISSIONS: Final = "serviceAccounts.testIamPermissions"


@dataclass(frozen=True)
class Request:
    """A request.

    Args:
        method: `instances.insert`.
        project: of the path.
        path: parameters of the path.
        query: of the URL.
        body: as sent.
        token: the bearer token; empty for none.
    """

    method: str
    project: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(repr=False)
    token: str = ""


class GceError(Exception):
    """A refusal, raised by a rule of a fake. One without reason is not of Google."""

    def __init__(self, status: int, reason: str, message: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.message = message or f"{reason} (strict fake)"


def not_found(what: str) -> GceError:
    return GceError(404, "notFound", f"The resource '{what}' was not found")


def read_request(environment: Environment) -> Request:
    """Raises GceError: the strict fake has no such method."""
    length = int(environment.get("CONTENT_LENGTH") or 0)
    raw = environment["wsgi.input"].read(length)
    body = json.loads(raw) if raw else {}
    path = unquote(environment["PATH_INFO"])
    query = dict(parse_qsl(environment.get("QUERY_STRING", ""), keep_blank_values=True))
    token = environment.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
    if found := _PERMISSIONS.match(path):
        return Request(TEST_PERMISSIONS, found[1], {}, query, body, token)
    if found := _ACCOUNT_PERMISSIONS.match(path):
        named = {"account": found[1]}
        return Request(TEST_ACCOUNT_PERMISSIONS, PROJECT, named, query, body, token)
    found = _BASE.match(path)
    if found is not None:
        for verb, pattern, method in _PATTERNS:
            matched = pattern.fullmatch(found[2])
            if verb == environment["REQUEST_METHOD"] and matched:
                return Request(method, found[1], matched.groupdict(), query, body, token)
    raise GceError(404, "", f"the strict fake has no {environment['REQUEST_METHOD']} {path}")


def json_answer(value: Mapping[str, Any]) -> Answer:
    return Answer(200, json.dumps(value).encode(), "application/json")


def error_answer(error: GceError) -> Answer:
    if not error.reason:
        return Answer(error.status, b"<!doctype html><title>Bad gateway</title>", "text/html")
    told = {
        "error": {
            "code": error.status,
            "message": error.message,
            "errors": [{"message": error.message, "domain": "global", "reason": error.reason}],
        }
    }
    return Answer(error.status, json.dumps(told).encode(), "application/json")
