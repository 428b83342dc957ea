"""A strict Resource Manager of Azure: the requests that fleets need, with faults on demand.

`with strict_arm() as arm:` gives an address (`arm.url`) for clients. See `README.md` for what is
strict.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from strict_clouds import arm_models
from strict_clouds.arm_machines import TOKEN, MachineRules
from strict_clouds.arm_network import NetworkRules, openings
from strict_clouds.arm_state import (
    FIREWALLS,
    LOCATIONS,
    MACHINES,
    Conditions,
    Resource,
    Rule,
    State,
    assigned,
    check_tags,
    properties,
)
from strict_clouds.arm_wire import SUBSCRIPTION, ArmError, Reply, Request, read_request
from strict_clouds.aws_wire import Answer, Environment, StartResponse, respond, serving
from strict_clouds.firewall import IngressRule
from strict_clouds.machines import Machine, MachineBooter
from strict_clouds.schemas import Violations
from strict_clouds.usage import Usage

__all__ = ["SUBSCRIPTION", "Conditions", "StrictArm", "strict_arm"]

#: Requests for which a group that is deleted is still there.
_GROUP_CALLS: Final = 2
#: (rule, a part of the body) -> action that Azure looks at besides.
_JOINED: Final = {
    "networkSecurityGroup": "Microsoft.Network/networkSecurityGroups/join/action",
    "publicIPAddress": "Microsoft.Network/publicIPAddresses/join/action",
    "subnet": "Microsoft.Network/virtualNetworks/subnets/join/action",
}


@dataclass
class _Fault:
    """What happens to the next calls of a rule: an error, or for None a lost reply."""

    rule: str
    error: ArmError | None
    times: int


class StrictArm:
    """See the module.

    Attributes:
        url: address of the Resource Manager.
        conditions: how it behaves.
        calls: all requests, in order.
        used_actions: the actions that Azure looked at.
        machines: virtual machines, and what tests do to them.
        violations: of Azure's models; some make the end of `strict_arm` an error.
    """

    def __init__(
        self, machines: MachineBooter | None = None, policy: Mapping[str, Any] | None = None
    ) -> None:
        self.conditions = Conditions()
        if policy is not None:
            self.conditions.roles = {"": [assigned(policy)]}
        self.state = State(self.conditions)
        self.calls: list[Request] = []
        self.used_actions: set[str] = set()
        self._lock = threading.RLock()
        self._faults: list[_Fault] = []
        self._gone_at: dict[str, int] = {}
        self.violations = Violations()
        self.machines = MachineRules(self.conditions, self.state, machines, self._require)
        network = NetworkRules(self.state, self.machines.refresh_firewalls)
        self._rules: dict[str, Rule] = {
            **self.machines.rules,
            **network.rules,
            "groups.list": self._list_groups,
            "groups.get": self._get_group,
            "groups.put": self._put_group,
            "groups.delete": self._delete_group,
            "groups.resources": self._group_resources,
            "providers.get": self._provider,
            "permissions.list": self._permissions,
            "operations.get": self.state.look,
        }

    @property
    def url(self) -> str:
        return self.state.url

    # What tests do.

    def throttle(self, rule: str, times: int = 1) -> None:
        """Refuse the next calls of a rule, such as `machines.put`."""
        error = ArmError(429, "TooManyRequests", headers={"Retry-After": "2"})
        self._faults.append(_Fault(rule, error, times))

    def fail(self, rule: str, status: int, code: str, times: int = 1) -> None:
        """Refuse the next calls of a rule; without a code as a proxy does."""
        self._faults.append(_Fault(rule, ArmError(status, code), times))

    def lose_reply(self, rule: str, times: int = 1) -> None:
        """Carry out the next calls of a rule, and break the connection before the answer."""
        self._faults.append(_Fault(rule, None, times))

    def requests(self, rule: str) -> list[Request]:
        with self._lock:
            return [call for call in self.calls if call.rule == rule]

    def virtual_machines(self) -> list[Resource]:
        with self._lock:
            return self.state.of_kind(MACHINES)

    def machine(self, name: str) -> Machine:
        """What runs where a virtual machine stands."""
        with self._lock:
            return next(
                booted for key, booted in self.machines.booted.items() if key.endswith(f"/{name}")
            )

    def open_to(self, location: str, tag: str) -> set[IngressRule]:
        """What the firewalls of a location with a tag let in."""
        with self._lock:
            return {
                rule
                for one in self.state.of_kind(FIREWALLS)
                if one["location"] == location and tag in (one.get("tags") or {})
                for rule in openings(one)
            }

    @property
    def usage(self) -> Usage:
        """What it bills."""
        return self.machines.usage

    def leftovers(self) -> dict[str, list[str]]:
        """All that exists, by kind; empty for nothing."""
        left: dict[str, list[str]] = defaultdict(list)
        with self._lock:
            for one in self.state.resources.values():
                left[one["type"]].append(one["name"])
            left["groups"] = [one["name"] for one in self.state.groups.values()]
        return {kind: names for kind, names in left.items() if names}

    # What clients do.

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        with self._lock:
            if path.startswith("/console"):
                reply = self._console(path.removeprefix("/console"), environment)
            elif path.startswith("/metadata"):
                reply = self._token(path.removeprefix("/metadata"), environment)
            else:
                try:
                    reply = self._answered(read_request(environment))
                except ArmError as error:
                    reply = error.reply()
        if reply.is_lost:
            return respond(Answer(0, b"", "", is_lost=True), start_response)
        content = reply.content
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(content))),
            *reply.headers.items(),
        ]
        start_response(f"{reply.status} strict", headers)
        return [content]

    def _answered(self, request: Request) -> Reply:
        self.calls.append(request)
        self.violations.add(request.rule, arm_models.of_request(request))
        self.state.calls += 1
        self.machines.advance()
        self._end_groups()
        fault = next((one for one in self._faults if one.rule == request.rule and one.times), None)
        if fault is not None:
            fault.times -= 1
            if fault.error is not None:
                raise fault.error
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if bearer.startswith(TOKEN):
            self.machines.require_right(request, bearer.removeprefix(TOKEN))
        else:
            self._require(request.action)
            self._require_joined(request)
        reply = self._rules[request.rule](request)
        self.violations.add(f"answer of {request.rule}", arm_models.of_answer(request, reply))
        return Reply(is_lost=True) if fault is not None else reply

    def _require(self, action: str) -> None:
        self.used_actions.add(action)
        if not self.conditions.allows(action):
            raise ArmError(
                403,
                "AuthorizationFailed",
                f"The client does not have authorization to perform action '{action}'.",
            )

    def _require_joined(self, request: Request) -> None:
        """Actions for the resources that a request names."""
        if request.rule != "interfaces.put":
            return
        text = str(request.body)
        for part, action in _JOINED.items():
            if f"'{part}'" in text:
                self._require(action)

    def _list_groups(self, request: Request) -> Reply:
        found = list(self.state.groups.values())
        wanted = request.query.get("$filter")
        if wanted:
            name, value = _quoted(wanted)
            found = [one for one in found if (one.get("tags") or {}).get(name) == value]
        return self.state.page(found, request)

    def _get_group(self, request: Request) -> Reply:
        return Reply(body=self.state.group(request.path["group"]))

    def _put_group(self, request: Request) -> Reply:
        name = request.path["group"]
        before = self.state.groups.get(name.lower())
        if before is not None and properties(before)["provisioningState"] == "Deleting":
            raise ArmError(409, "ResourceGroupBeingDeleted")
        if before is not None and before["location"] != request.body["location"]:
            raise ArmError(409, "InvalidResourceGroupLocation")
        check_tags(request.body.get("tags") or {})
        made = {
            **request.body,
            "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}",
            "name": name,
            "type": "Microsoft.Resources/resourceGroups",
            "properties": {"provisioningState": "Succeeded"},
        }
        self.state.groups[name.lower()] = made
        return Reply(200 if before else 201, made)

    def _delete_group(self, request: Request) -> Reply:
        group = self.state.writable_group(request.path["group"])
        properties(group)["provisioningState"] = "Deleting"
        self._gone_at[group["name"].lower()] = self.state.calls + _GROUP_CALLS
        where = f"{self.url}/subscriptions/{SUBSCRIPTION}/operationresults/group"
        return Reply(202, None, {"Location": where, "Retry-After": "15"})

    def _end_groups(self) -> None:
        for name, call in list(self._gone_at.items()):
            if self.state.calls > call:
                self.machines.cut_power_in(name)
                prefix = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/{name}/"
                for key in [one for one in self.state.resources if one.startswith(prefix)]:
                    self.state.remove(key)
                del self.state.groups[name], self._gone_at[name]

    def _group_resources(self, request: Request) -> Reply:
        group = self.state.group(request.path["group"])
        prefix = f"{group['id']}/".lower()
        found = [
            {name: one[name] for name in ("id", "name", "type", "location")}
            for key, one in self.state.resources.items()
            if key.startswith(prefix)
        ]
        return self.state.page(found, request)

    def _provider(self, request: Request) -> Reply:
        name = request.path["provider"]
        is_registered = name not in self.conditions.unregistered
        body: dict[str, Any] = {
            "namespace": name,
            "registrationState": "Registered" if is_registered else "NotRegistered",
            "resourceTypes": [
                {
                    "resourceType": "virtualMachines",
                    "locations": [shown for shown, _ in LOCATIONS.values()],
                },
                {"resourceType": "galleries", "locations": ["Brazil South"]},
            ],
        }
        return Reply(body=body)

    def _permissions(self, request: Request) -> Reply:
        """The caller's roles at a scope: those of the subscription, and those of a resource."""
        scope = request.path.get("scope", "")
        resource = f"resourceGroups/{request.path['group']}/{scope}" if scope else ""
        roles = self.conditions.roles_at(resource)
        # One role a page, so that clients have to follow the links.
        number = int(request.query.get("$skiptoken", "0"))
        more: dict[str, str] = {}
        if number + 1 < len(roles):
            path = f"{resource}/" if resource else ""
            more["nextLink"] = (
                f"{self.url}/subscriptions/{SUBSCRIPTION}/{path}providers/Microsoft.Authorization"
                f"/permissions?api-version=2022-04-01&$skiptoken={number + 1}"
            )
        rows = [{**role, "dataActions": [], "notDataActions": []} for role in roles]
        return Reply(body={"value": rows[number : number + 1], **more})

    def _console(self, key: str, environment: Environment) -> Reply:
        content = self.machines.console_of(key)
        if not content:
            return Reply(404, b"")
        most = int(environment.get("HTTP_RANGE", "bytes=-0").rpartition("-")[2])
        return Reply(206, content[-most:])

    def _token(self, path: str, environment: Environment) -> Reply:
        """The metadata service of a machine, whose resource id the path begins with."""
        key, _, asked = path.partition("/metadata/")
        token = self.machines.token(key)
        if asked != "identity/oauth2/token" or environment.get("HTTP_METADATA") != "true":
            return Reply(400, b"")
        return Reply(200, {"access_token": token, "client_id": "x"}) if token else Reply(400, b"")


def _quoted(text: str) -> tuple[str, str]:
    """Name and value of `tagName eq 'NAME' and tagValue eq 'VALUE'`."""
    found = re.fullmatch(r"tagName eq '(.*)' and tagValue eq '(.*)'", text)
    if found is None:
        raise ArmError(400, "InvalidFilterInQueryString")
    return found[1].replace("''", "'"), found[2].replace("''", "'")


@contextmanager
def strict_arm(
    machines: MachineBooter | None = None, policy: Mapping[str, Any] | None = None
) -> Iterator[StrictArm]:
    """A subscription without resources.

    Args:
        policy: the definition of the caller's role on the subscription, as `az role definition
            create` takes it; None allows everything.

    Raises ValueError: the definition has something that the fake does not know.
    """
    arm = StrictArm(machines, policy)
    with serving(arm) as url:
        arm.state.url = url
        yield arm
    arm.violations.require_none()
