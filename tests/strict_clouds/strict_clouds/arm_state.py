"""What the parts of the strict Resource Manager share: conditions, resources, operations."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from strict_clouds.arm_wire import SUBSCRIPTION, ArmError, Reply, Request

Resource = dict[str, Any]
Rule = Callable[[Request], Reply]

MACHINES: Final = "Microsoft.Compute/virtualMachines"
DISKS: Final = "Microsoft.Compute/disks"
FIREWALLS: Final = "Microsoft.Network/networkSecurityGroups"
NETWORKS: Final = "Microsoft.Network/virtualNetworks"
INTERFACES: Final = "Microsoft.Network/networkInterfaces"
ADDRESSES: Final = "Microsoft.Network/publicIPAddresses"

#: Location -> its name in lists of providers, and its zones.
LOCATIONS: Final = {
    "westeurope": ("West Europe", ("1", "2", "3")),
    "eastus": ("East US", ("1", "2", "3")),
    "westus": ("West US", ()),
}
#: Size -> family, vCPUs, architecture.
SIZES: Final = {
    "Standard_D4s_v5": ("standardDSv5Family", 4, "x64"),
    "Standard_D4pls_v5": ("standardDPLSv5Family", 4, "Arm64"),
    "Standard_D32_v5": ("standardDv5Family", 32, "x64"),
    "Standard_D32pls_v5": ("standardDPLSv5Family", 32, "Arm64"),
}


@dataclass
class Conditions:
    """How the fake behaves; may be changed at any time.

    Args:
        hidden_for: calls for which lists do not show a new machine.
        deleting_for: lists that show a deleted machine as `Deleting`.
        ending_s: seconds for which they do so at least.
        operation_polls: looks at an operation until it has ended; for 0 it ends at once.
        retry_after_s: until the next look, as operations say it.
        vcpu_quota, spot_quota: vCPUs of a location.
        quotas: (location, quota) -> another value.
        full: zones (`westeurope-1`), or sizes of a zone (`westeurope-1/Standard_D4s_v5`), without
            capacity, found out by the operation.
        closed_sizes: (location, size) that are refused at once.
        denied: actions that are refused, and that no role has.
        disallowed: types of resources that a policy of the organisation denies.
        roles: path of a resource behind the subscription, in lower case, or empty for the
            subscription -> roles of the caller there; None for one that has all actions.
        unregistered: resource providers.
        ignores_conditions: a second request for a machine is refused for its boot script only.
    """

    hidden_for: int = 0
    deleting_for: int = 1
    ending_s: float = 0.0
    operation_polls: int = 1
    retry_after_s: int = 1
    vcpu_quota: int = 64
    spot_quota: int = 64
    quotas: dict[tuple[str, str], int] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    closed_sizes: set[tuple[str, str]] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    disallowed: set[str] = field(default_factory=set)
    roles: Mapping[str, list[dict[str, list[str]]]] | None = None
    unregistered: set[str] = field(default_factory=set)
    ignores_conditions: bool = False

    def quota(self, location: str, name: str) -> int:
        default = self.spot_quota if name == "lowPriorityCores" else self.vcpu_quota
        return self.quotas.get((location, name), default)

    def roles_at(self, resource: str = "") -> list[dict[str, list[str]]]:
        """The caller's roles at a resource, or at the subscription."""
        if self.roles is None:
            return [{"actions": ["*"], "notActions": sorted(self.denied)}]
        inherited = self.roles.get("", [])
        roles = [*inherited, *(self.roles.get(resource.lower(), []) if resource else [])]
        return [{**one, "notActions": [*one["notActions"], *sorted(self.denied)]} for one in roles]

    def allows(self, action: str) -> bool:
        """Whether some role of the caller, wherever it has it, allows an action."""
        if action in self.denied:
            return False
        roles = [role for at in self.roles or {} for role in self.roles_at(at)]
        return self.roles is None or any(
            any(fnmatchcase(action.lower(), one.lower()) for one in role["actions"])
            and not any(fnmatchcase(action.lower(), one.lower()) for one in role["notActions"])
            for role in roles
        )


def assigned(role: Mapping[str, Any]) -> dict[str, list[str]]:
    """The actions of a custom role that is assigned on the subscription, by its definition.

    The format is that of `az role definition create` (learn.microsoft.com, "Azure custom roles",
    as read on 2026-11-25). Raises ValueError for other fields, and for a role that cannot be
    assigned there.
    """
    lists = {"Actions", "NotActions", "DataActions", "NotDataActions", "AssignableScopes"}
    if set(role) != lists | {"Name", "IsCustom", "Description"}:
        raise ValueError(f"the strict fake does not know a role with the fields: {set(role)}")
    if role["DataActions"] or role["NotDataActions"]:
        raise ValueError("the strict fake has no data actions")
    if f"/subscriptions/{SUBSCRIPTION}" not in role["AssignableScopes"]:
        raise ValueError(f"the role is for {role['AssignableScopes']}, and not for {SUBSCRIPTION}")
    return {"actions": list(role["Actions"]), "notActions": list(role["NotActions"])}


@dataclass
class _Operation:
    polls_left: int
    finish: Callable[[], ArmError | None]
    error: ArmError | None = None
    is_done: bool = False


class State:
    """Groups and resources. The caller holds the lock of the fake.

    Attributes:
        url: of the fake.
        calls: how many were made.
    """

    def __init__(self, conditions: Conditions) -> None:
        self.url = ""
        self.conditions = conditions
        self.calls = 0
        self.groups: dict[str, Resource] = {}
        self.resources: dict[str, Resource] = {}
        self._shown_from: dict[str, int] = {}
        self._operations: dict[str, _Operation] = {}
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A new one for each call."""
        return next(self._numbers)

    def group(self, name: str) -> Resource:
        """Raises ArmError."""
        found = self.groups.get(name.lower())
        if found is None:
            raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{name}' not found.")
        return found

    def writable_group(self, name: str) -> Resource:
        """Raises ArmError: it is gone, or is being deleted."""
        found = self.group(name)
        if found["properties"]["provisioningState"] == "Deleting":
            raise ArmError(409, "ResourceGroupBeingDeleted")
        return found

    def id_of(self, group: str, kind: str, name: str) -> str:
        return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/{kind}/{name}"

    def find(self, resource_id: str) -> Resource | None:
        return self.resources.get(resource_id.lower())

    def required(self, resource_id: str) -> Resource:
        """Raises ArmError."""
        found = self.find(resource_id)
        if found is None:
            raise ArmError(404, "ResourceNotFound", f"{resource_id} was not found.")
        return found

    def put(self, group: str, kind: str, name: str, body: Mapping[str, Any]) -> Resource:
        """A new resource, or new values of one."""
        resource_id = self.id_of(group, kind, name)
        if kind in self.conditions.disallowed:
            raise ArmError(
                403,
                "RequestDisallowedByPolicy",
                f"Resource '{name}' was disallowed by policy. Policy identifiers:"
                ' \'[{"policyAssignment":{"name":"Not allowed resource types"}}]\'.',
            )
        before = self.find(resource_id)
        if before is not None and before["location"] != body["location"]:
            raise ArmError(409, "InvalidResourceLocation")
        check_tags(body.get("tags") or {})
        made: Resource = {
            **body,
            "id": resource_id,
            "name": name,
            "type": kind,
            **({} if kind == DISKS else {"etag": f'W/"{self.number()}"'}),
            "properties": {**(body.get("properties") or {}), "provisioningState": "Succeeded"},
        }
        self.resources[resource_id.lower()] = made
        if before is None and self.conditions.hidden_for:
            self._shown_from[resource_id.lower()] = self.calls + self.conditions.hidden_for + 1
        return made

    def remove(self, resource_id: str) -> None:
        self.resources.pop(resource_id.lower(), None)

    def of_kind(self, kind: str, group: str = "") -> list[Resource]:
        """Those that exist, of one group or of all."""
        prefix = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/{group}/".lower()
        return [
            one
            for key, one in self.resources.items()
            if one["type"] == kind and (not group or key.startswith(prefix))
        ]

    def is_shown(self, resource: Resource) -> bool:
        """Whether lists have it already."""
        return self.calls >= self._shown_from.get(resource["id"].lower(), 0)

    def page(self, found: list[Resource], request: Request) -> Reply:
        """Two resources of a list, and where the next ones are."""
        first = int(request.query.get("$skiptoken", "0"))
        body: dict[str, Any] = {"value": found[first : first + 2]}
        if len(found) > first + 2:
            group = request.path.get("group")
            where = f"/resourceGroups/{group}" if group else ""
            kind = request.action.rpartition("/")[0]
            kind = f"providers/{kind}" if not kind.startswith("Microsoft.Resources") else ""
            tail = kind or ("resources" if group else "resourceGroups")
            query = "&".join(
                f"{name}={value.replace(' ', '%20')}"
                for name, value in {**request.query, "$skiptoken": str(first + 2)}.items()
            )
            body["nextLink"] = f"{self.url}/subscriptions/{SUBSCRIPTION}{where}/{tail}?{query}"
        return Reply(body=body)

    def begin(
        self,
        location: str,
        provider: str,
        finish: Callable[[], ArmError | None],
        status: int = 202,
        body: Any = None,
    ) -> Reply:
        """An operation that ends after some looks at it; `finish` tells its error."""
        operation = _Operation(self.conditions.operation_polls, finish)
        if not operation.polls_left:
            operation.error, operation.is_done = finish(), True
            if operation.error is None:
                return Reply(status if status != 202 else 204, body)
        name = f"op{self.number()}"
        self._operations[name] = operation
        where = (
            f"{self.url}/subscriptions/{SUBSCRIPTION}/providers/{provider}/locations/{location}"
            f"/operations/{name}?api-version=strict"
        )
        headers = {
            "Azure-AsyncOperation": where,
            "Retry-After": str(self.conditions.retry_after_s),
        }
        return Reply(status, body, headers)

    def look(self, request: Request) -> Reply:
        """At an operation."""
        operation = self._operations.get(request.path["operation"])
        if operation is None:
            raise ArmError(404, "NotFound")
        operation.polls_left -= 1
        if operation.polls_left < 0 and not operation.is_done:
            operation.error, operation.is_done = operation.finish(), True
        if not operation.is_done:
            headers = {"Retry-After": str(self.conditions.retry_after_s)}
            return Reply(200, {"status": "InProgress"}, headers)
        if operation.error is not None:
            return Reply(200, {"status": "Failed", **operation.error.told})
        return Reply(200, {"status": "Succeeded"})


def check_tags(tags: Mapping[str, str]) -> None:
    """Raises ArmError for tags that Azure refuses."""
    if len(tags) > 50:
        raise ArmError(400, "TooManyTags")
    for name, value in tags.items():
        if not name or len(name) > 512 or not set("<>%&\\?/").isdisjoint(name):
            raise ArmError(400, "InvalidTagNameCharacters", name)
        if len(value) > 256:
            raise ArmError(400, "TagValueTooLong", name)


def properties(resource: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = resource["properties"]
    return found


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.0000000+00:00", time.gmtime())
