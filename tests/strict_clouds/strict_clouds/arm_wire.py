"""Requests and answers of Azure's Resource Manager as HTTP carries them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from strict_clouds.aws_wire import Environment
from strict_clouds.schemas import model

SUBSCRIPTION: Final = "01234567-89ab-cdef-0123-456789abcdef"

_GROUP: Final = "resourceGroups/{group}"
_COMPUTE: Final = "providers/Microsoft.Compute"
_NETWORK: Final = f"{_GROUP}/providers/Microsoft.Network"
_MACHINE: Final = f"{_GROUP}/{_COMPUTE}/virtualMachines"
_ASSIGNMENT: Final = "providers/Microsoft.Authorization/roleAssignments/{assignment}"
_OPERATION: Final = "providers/{provider}/locations/{location}/operations/{operation}"
#: (method, path behind the subscription) -> name of the rule, and the action that roles allow.
ROUTES: Final = {
    ("GET", "resourceGroups"): (
        "groups.list",
        "Microsoft.Resources/subscriptions/resourceGroups/read",
    ),
    ("GET", _GROUP): ("groups.get", "Microsoft.Resources/subscriptions/resourceGroups/read"),
    ("PUT", _GROUP): ("groups.put", "Microsoft.Resources/subscriptions/resourceGroups/write"),
    ("DELETE", _GROUP): (
        "groups.delete",
        "Microsoft.Resources/subscriptions/resourceGroups/delete",
    ),
    ("GET", f"{_GROUP}/resources"): (
        "groups.resources",
        "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
    ),
    ("GET", "providers/{provider}"): (
        "providers.get",
        "Microsoft.Resources/subscriptions/providers/read",
    ),
    ("GET", "providers/Microsoft.Authorization/permissions"): (
        "permissions.list",
        "Microsoft.Authorization/permissions/read",
    ),
    ("GET", f"{_GROUP}/{{scope}}/providers/Microsoft.Authorization/permissions"): (
        "permissions.list",
        "Microsoft.Authorization/permissions/read",
    ),
    ("GET", "providers/Microsoft.Network/locations/{location}/usages"): (
        "networkUsages.list",
        "Microsoft.Network/locations/usages/read",
    ),
    ("GET", f"{_COMPUTE}/skus"): ("skus.list", "Microsoft.Compute/skus/read"),
    ("GET", f"{_COMPUTE}/locations/{{location}}/usages"): (
        "usages.list",
        "Microsoft.Compute/locations/usages/read",
    ),
    ("GET", f"{_COMPUTE}/virtualMachines"): (
        "machines.listAll",
        "Microsoft.Compute/virtualMachines/read",
    ),
    ("GET", f"{_COMPUTE}/disks"): ("disks.list", "Microsoft.Compute/disks/read"),
    ("GET", _MACHINE): ("machines.list", "Microsoft.Compute/virtualMachines/read"),
    ("GET", f"{_MACHINE}/{{name}}"): ("machines.get", "Microsoft.Compute/virtualMachines/read"),
    ("PUT", f"{_MACHINE}/{{name}}"): ("machines.put", "Microsoft.Compute/virtualMachines/write"),
    ("DELETE", f"{_MACHINE}/{{name}}"): (
        "machines.delete",
        "Microsoft.Compute/virtualMachines/delete",
    ),
    ("POST", f"{_MACHINE}/{{name}}/retrieveBootDiagnosticsData"): (
        "machines.console",
        "Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
    ),
    ("GET", f"{_MACHINE}/{{name}}/providers/Microsoft.Resources/tags/default"): (
        "machines.tags",
        "Microsoft.Resources/tags/read",
    ),
    ("PATCH", f"{_MACHINE}/{{name}}/providers/Microsoft.Resources/tags/default"): (
        "machines.tag",
        "Microsoft.Resources/tags/write",
    ),
    (
        "PUT",
        f"{_MACHINE}/{{name}}/{_ASSIGNMENT}",
    ): (
        "machines.assign",
        "Microsoft.Authorization/roleAssignments/write",
    ),
    ("GET", f"{_GROUP}/{_COMPUTE}/disks"): ("disks.list", "Microsoft.Compute/disks/read"),
    ("DELETE", f"{_GROUP}/{_COMPUTE}/disks/{{name}}"): (
        "disks.delete",
        "Microsoft.Compute/disks/delete",
    ),
    **{
        (method, f"{_NETWORK}/networkSecurityGroups/{{name}}/securityRules/{{rule}}"): (
            f"securityRules.{method.lower()}",
            f"Microsoft.Network/networkSecurityGroups/securityRules/{allowed}",
        )
        for method, allowed in (("DELETE", "delete"), ("GET", "read"), ("PUT", "write"))
    },
    ("GET", _OPERATION): ("operations.get", "{provider}/locations/operations/read"),
    **{
        (method, path): (f"{rule}.{verb}", f"Microsoft.Network/{kind}/{allowed}")
        for rule, kind in (
            ("firewalls", "networkSecurityGroups"),
            ("networks", "virtualNetworks"),
            ("interfaces", "networkInterfaces"),
            ("addresses", "publicIPAddresses"),
        )
        for method, path, verb, allowed in (
            ("GET", f"providers/Microsoft.Network/{kind}", "list", "read"),
            ("GET", f"{_NETWORK}/{kind}", "list", "read"),
            ("GET", f"{_NETWORK}/{kind}/{{name}}", "get", "read"),
            ("PUT", f"{_NETWORK}/{kind}/{{name}}", "put", "write"),
            ("DELETE", f"{_NETWORK}/{kind}/{{name}}", "delete", "delete"),
        )
    },
}
_PATTERNS: Final = [
    (
        method,
        re.compile(
            re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path.replace("{scope}", "(?P<scope>.+)")),
            re.IGNORECASE,
        ),
        *named,
    )
    for (method, path), named in ROUTES.items()
]
_BASE: Final = re.compile(r"/+subscriptions/([^/]+)/(.*)\Z")


@dataclass(frozen=True)
class Request:
    """A request.

    Args:
        rule: `machines.put`.
        action: as roles name it.
        path: parameters of the path.
        query: of the URL.
        headers: by lower-case name.
        body: as sent.
    """

    rule: str
    action: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Reply:
    """An answer; `is_lost` breaks the connection in its place."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_lost: bool = False

    @property
    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body).encode()


class ArmError(Exception):
    """A refusal, raised by a rule of the fake. One without code is not of Azure."""

    def __init__(
        self, status: int, code: str, message: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message or f"{code} (strict fake)"
        self.headers = headers or {}

    @property
    def told(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}

    def reply(self) -> Reply:
        if not self.code:
            return Reply(self.status, b"<!doctype html><title>Bad gateway</title>")
        return Reply(self.status, self.told, self.headers)


def _check_version(rule: str, query: Mapping[str, str]) -> None:
    """Raises ArmError: the request has no version, or one that the SDK does not send."""
    if "api-version" not in query:
        raise ArmError(400, "MissingApiVersionParameter")
    # The address of an operation is the fake's own.
    if rule == "operations.get":
        return
    known = model("arm").methods[rule]["version"]
    if query["api-version"] != known:
        raise ArmError(400, "NoRegisteredProviderFound", f"{rule} has no {query['api-version']}")


def read_request(environment: Environment) -> Request:
    """Raises ArmError: the strict fake has no such method, or it is another's subscription."""
    length = int(environment.get("CONTENT_LENGTH") or 0)
    raw = environment["wsgi.input"].read(length)
    method, path = environment["REQUEST_METHOD"], unquote(environment["PATH_INFO"])
    query = dict(parse_qsl(environment.get("QUERY_STRING", ""), keep_blank_values=True))
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environment.items()
        if name.startswith("HTTP_")
    }
    found = _BASE.match(path)
    if found is not None and found[1] != SUBSCRIPTION:
        raise ArmError(404, "SubscriptionNotFound")
    if found is not None:
        for verb, pattern, rule, action in _PATTERNS:
            matched = pattern.fullmatch(found[2])
            if verb == method and matched:
                _check_version(rule, query)
                named = matched.groupdict()
                body = json.loads(raw) if raw else {}
                return Request(rule, action.format(**named), named, query, headers, body)
    raise ArmError(404, "", f"the strict fake has no {method} {path}")
