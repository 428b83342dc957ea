"""A strict Compute Engine: an HTTP fake of the methods that are used, with faults on demand.

`with strict_gce() as gce:` gives an address (`gce.url`) for clients of Compute Engine, and of the
one method of Resource Manager. See `README.md` for what is strict.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from strict_clouds import gce_models
from strict_clouds.aws_wire import Answer, Environment, StartResponse, respond, serving
from strict_clouds.gce_facts import (
    ADDRESS_QUOTA,
    ALL_REGIONS_QUOTA,
    SPOT_QUOTA,
    TYPES,
    ZONES,
    Conditions,
    Visibility,
    granted_by,
    permissions_of,
)
from strict_clouds.gce_firewalls import FirewallRules, Opening
from strict_clouds.gce_instances import InstanceRules, Resource, stop
from strict_clouds.gce_wire import (
    PROJECT,
    TEST_ACCOUNT_PERMISSIONS,
    TEST_PERMISSIONS,
    GceError,
    Request,
    error_answer,
    json_answer,
    not_found,
    read_request,
)
from strict_clouds.machines import MachineBooter
from strict_clouds.schemas import Violations
from strict_clouds.usage import Usage

__all__ = ["PROJECT", "Conditions", "StrictGce", "strict_gce"]

#: Methods that change what an instance's firewall lets in.
_FIREWALL_METHODS: Final = (
    "firewalls.delete",
    "firewalls.insert",
    "firewalls.patch",
    "instances.insert",
)
#: Methods that make something, and so return an operation and take a request id.
_INSERTS: Final = ("instances.insert", "firewalls.insert")


@dataclass
class _Fault:
    """What happens to the next calls of a method: an error, or for None a lost reply."""

    method: str
    error: GceError | None
    times: int
    after: int = 0


@dataclass
class _Operation:
    """An operation, and how many waits for it end before it is done."""

    name: str
    zone: str
    target: str
    error: str
    message: str
    metric: str
    waits: int


class StrictGce:
    """See the module.

    Attributes:
        url: address of all services.
        conditions: how it behaves.
        calls: all requests, in order.
        used_permissions: the permissions that IAM looked at.
        violations: of Google's models; some make the end of `strict_gce` an error.
    """

    def __init__(
        self, machines: MachineBooter | None = None, policy: Mapping[str, Any] | None = None
    ) -> None:
        self.url = ""
        self.conditions = Conditions()
        self._granted = None if policy is None else granted_by(policy)
        self.calls: list[Request] = []
        self.used_permissions: set[str] = set()
        self._lock = threading.RLock()
        self._faults: list[_Fault] = []
        self._operations: dict[str, _Operation] = {}
        self._requests: dict[str, _Operation] = {}
        self.violations = Violations()
        self._numbers = itertools.count(1)
        visibility = Visibility()
        self.instances = InstanceRules(self.conditions, visibility, machines)
        self.firewalls = FirewallRules(self.conditions, visibility)
        self._rules: dict[str, Callable[[Request], Resource]] = {
            "projects.get": self._project,
            "regions.list": self._regions,
            TEST_PERMISSIONS: self._held,
            TEST_ACCOUNT_PERMISSIONS: self._held,
            "machineTypes.aggregatedList": lambda request: self._aggregated(
                request, "machineTypes", self._types(request)
            ),
            "instances.aggregatedList": lambda request: self._aggregated(
                request, "instances", self.instances.described(request)
            ),
            "disks.aggregatedList": lambda request: self._aggregated(
                request, "disks", self.instances.disks(request)
            ),
            "instances.insert": self._insert_instance,
            "instances.get": lambda request: _shown(self.instances.get(request)),
            "instances.delete": lambda request: self._begun(
                request, self.instances.delete(request)["id"]
            ),
            "instances.setLabels": lambda request: self._begun(
                request, self.instances.set_labels(request)["id"]
            ),
            "instances.getSerialPortOutput": self.instances.console,
            "disks.delete": lambda request: self._begun(
                request, self.instances.delete_disk(request)["id"]
            ),
            "zoneOperations.wait": self._wait,
            "globalOperations.wait": self._wait,
            "firewalls.list": self._list_firewalls,
            "firewalls.get": lambda request: self.firewalls.get(request.path["firewall"]),
            "firewalls.insert": self._insert_firewall,
            "firewalls.patch": self._patch_firewall,
            "firewalls.delete": self._delete_firewall,
        }

    # What tests do.

    def throttle(self, method: str, times: int = 1, after: int = 0) -> None:
        """Refuse `times` calls of a method, after so many that succeed."""
        error = GceError(403, "rateLimitExceeded", "Rate Limit Exceeded")
        self._faults.append(_Fault(method, error, times, after))

    def fail(self, method: str, status: int, reason: str, times: int = 1) -> None:
        """Refuse the next calls of a method."""
        self._faults.append(_Fault(method, GceError(status, reason), times))

    def lose_reply(self, method: str, times: int = 1) -> None:
        """Carry out the next calls of a method, and break the connection before the answer."""
        self._faults.append(_Fault(method, None, times))

    def methods(self, *names: str) -> list[str]:
        """The methods that were called, in order; only those of `names`, if there are some."""
        with self._lock:
            return [call.method for call in self.calls if not names or call.method in names]

    def requests(self, method: str) -> list[Request]:
        with self._lock:
            return [call for call in self.calls if call.method == method]

    def instance(self, cloud_id: str) -> Resource:
        """The instance of `zone/id`."""
        with self._lock:
            return self.instances.by_id(cloud_id.partition("/")[2])[1]

    def end_by_hand(self, cloud_id: str) -> None:
        """Delete an instance as somebody does in the console; takes effect at once."""
        with self._lock:
            kept, self.conditions.deleting_for = self.conditions.deleting_for, 0
            self.instances.begin_delete(*self.instances.by_id(cloud_id.partition("/")[2]))
            self.conditions.deleting_for = kept

    def power_off(self, cloud_id: str) -> None:
        """Stop an instance as its guest does."""
        with self._lock:
            stop(self.instance(cloud_id))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self.conditions.now_s += seconds
            self.instances.advance()

    def openings(self) -> set[Opening]:
        with self._lock:
            return self.firewalls.openings()

    @property
    def usage(self) -> Usage:
        """What it bills."""
        return self.instances.usage

    def leftovers(self) -> dict[str, list[str]]:
        """Everything that exists and that no project has from its beginning, by kind."""
        left: dict[str, list[str]] = defaultdict(list)
        with self._lock:
            for zone in self.instances.zones.values():
                left["instances"] += zone.instances
                left["disks"] += zone.disks
            left["firewalls"] += self.firewalls.rules
        return {kind: names for kind, names in left.items() if names}

    def cut_all_power(self) -> None:
        for machine in self.instances.booted.values():
            if machine.is_running:
                machine.cut_power()

    # What clients do.

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            try:
                answer = self._answered(read_request(environment))
            except GceError as error:
                answer = error_answer(error)
        return respond(answer, start_response)

    def _answered(self, request: Request) -> Answer:
        self.calls.append(request)
        self.violations.add(request.method, gce_models.of_request(request))
        fault = self._fault(request.method)
        if fault is not None and fault.error is not None:
            raise fault.error
        self._require_permission(request)
        self.instances.advance()
        told = self._rules[request.method](request)
        self.violations.add(f"answer of {request.method}", gce_models.of_answer(request, told))
        answer = json_answer(told)
        if request.method in _FIREWALL_METHODS:
            self._set_firewalls()
        return Answer(0, b"", "", is_lost=True) if fault is not None else answer

    def _set_firewalls(self) -> None:
        """Give the machines the rules for their instances' network tags."""
        for zone in self.instances.zones.values():
            for instance in zone.instances.values():
                machine = self.instances.booted.get(instance["id"])
                if machine is not None:
                    machine.allow(self.firewalls.let_in(instance["tags"]["items"]))

    def _fault(self, method: str) -> _Fault | None:
        for fault in self._faults:
            if fault.method != method or fault.times == 0:
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            return fault
        return None

    def _require_permission(self, request: Request) -> None:
        for permission in permissions_of(request.method, request.body):
            self.used_permissions.add(permission)
            if not self._has(permission):
                raise GceError(
                    403,
                    "forbidden",
                    f"Required '{permission}' permission for 'projects/{request.project}'",
                )

    def _has(self, permission: str) -> bool:
        is_granted = self._granted is None or permission in self._granted
        return is_granted and permission not in self.conditions.denied

    # Operations.

    def _begun(
        self,
        request: Request,
        target: str,
        error: str = "",
        message: str = "",
        metric: str = "",
    ) -> Resource:
        operation = _Operation(
            name=f"operation-{next(self._numbers)}",
            zone=request.path.get("zone", ""),
            target=target,
            error=error,
            message=message or error,
            metric=metric,
            waits=self.conditions.operation_waits,
        )
        self._operations[operation.name] = operation
        if request.method in _INSERTS and (request_id := request.query.get("requestId")):
            self._requests[request_id] = operation
        return _operation(operation, is_done=False)

    def _wait(self, request: Request) -> Resource:
        operation = self._operations.get(request.path["operation"])
        if operation is None or operation.zone != request.path.get("zone", ""):
            raise not_found(request.path["operation"])
        operation.waits -= 1
        return _operation(operation, is_done=operation.waits <= 0)

    def _known(self, request: Request) -> Resource | None:
        """The operation of a request that was sent before."""
        request_id = request.query.get("requestId", "")
        if request_id and uuid.UUID(request_id).int == 0:
            raise GceError(400, "invalid", "the request id is zero")
        found = self._requests.get(request_id)
        return _operation(found, is_done=found.waits <= 0) if found is not None else None

    # Methods.

    def _insert_instance(self, request: Request) -> Resource:
        if not request.query.get("requestId"):
            raise GceError(400, "invalid", "the strict fake wants a request id")
        if known := self._known(request):
            return known
        instance, error = self.instances.insert(request)
        message = f"{error}: {instance['machineType']}"
        is_quota = error == "QUOTA_EXCEEDED"
        metric = self.instances.metric(request.path["zone"], instance) if is_quota else ""
        return self._begun(request, instance["id"], error, message, metric)

    def _insert_firewall(self, request: Request) -> Resource:
        self.firewalls.insert(dict(request.body))
        return self._begun(request, "1")

    def _patch_firewall(self, request: Request) -> Resource:
        self.firewalls.patch(request.path["firewall"], dict(request.body))
        return self._begun(request, "1")

    def _delete_firewall(self, request: Request) -> Resource:
        self.firewalls.delete(request.path["firewall"])
        return self._begun(request, "1")

    def _list_firewalls(self, request: Request) -> Resource:
        rows, token = self._page(request, self.firewalls.listed(request))
        return {"items": rows, **token}

    def _project(self, request: Request) -> Resource:
        metric = ALL_REGIONS_QUOTA
        return {"name": request.project, "quotas": [self._quota("", metric)]}

    def _regions(self, request: Request) -> Resource:
        metrics = [*sorted({kind[2] for kind in TYPES.values()}), SPOT_QUOTA, ADDRESS_QUOTA]
        rows = [
            {
                "name": region,
                "status": "UP",
                "quotas": [self._quota(region, metric) for metric in metrics],
            }
            for region in ZONES
        ]
        rows, token = self._page(request, rows)
        return {"items": rows, **token}

    def _quota(self, region: str, metric: str) -> Resource:
        return {
            "metric": metric,
            "limit": self.conditions.quota(region, metric),
            "usage": float(self.instances.used(region, metric)),
        }

    def _held(self, request: Request) -> Resource:
        asked = request.body["permissions"]
        return {"permissions": [one for one in asked if self._has(one)]}

    def _types(self, request: Request) -> Iterator[tuple[str, Resource]]:
        wanted = request.query["filter"].removeprefix('name="').removesuffix('"')
        for zone in self.instances.zones:
            for name, (vcpus, architecture, _, lacking) in TYPES.items():
                if name == wanted and zone not in lacking:
                    yield zone, {"name": name, "guestCpus": vcpus, "architecture": architecture}

    def _aggregated(
        self, request: Request, field: str, found: Iterable[tuple[str, Resource]]
    ) -> Resource:
        rows, token = self._page(request, list(found))
        empty = {"warning": {"code": "NO_RESULTS_ON_PAGE"}}
        scopes: dict[str, Resource] = {f"zones/{zone}": empty for zone in self.instances.zones}
        for zone, resource in rows:
            scope = scopes[f"zones/{zone}"]
            if scope is empty:
                scope = scopes[f"zones/{zone}"] = {field: []}
            scope[field].append(_shown(resource))
        for zone in self.conditions.unreachable:
            scopes[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE"}}
        return {"items": scopes, **token}

    def _page(self, request: Request, rows: list[Any]) -> tuple[list[Any], dict[str, str]]:
        size = min(int(request.query.get("maxResults", 500)), self.conditions.most_per_page)
        first = int(request.query.get("pageToken") or 0)
        token = {"nextPageToken": str(first + size)} if first + size < len(rows) else {}
        return rows[first : first + size], token


def _shown(resource: Resource) -> Resource:
    return {name: value for name, value in resource.items() if not name.startswith("_")}


def _operation(operation: _Operation, *, is_done: bool) -> Resource:
    shown: Resource = {
        "name": operation.name,
        "status": "DONE" if is_done else "RUNNING",
        "targetId": operation.target,
    }
    if operation.zone:
        shown["zone"] = f"projects/{PROJECT}/zones/{operation.zone}"
    if is_done and operation.error:
        error = {"code": operation.error, "message": operation.message}
        shown["error"] = {"errors": [error | _details(operation.metric)]}
    return shown


def _details(metric: str) -> Resource:
    """What the error of an operation has of a quota; nothing for no metric."""
    if not metric:
        return {}
    quota = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limitName": f"{metric.replace('_', '-')}-per-project-region",
    }
    return {"errorDetails": [{"quotaInfo": quota}]}


@contextmanager
def strict_gce(
    machines: MachineBooter | None = None, policy: Mapping[str, Any] | None = None
) -> Iterator[StrictGce]:
    """A Compute Engine with an empty project.

    Args:
        policy: the definition of the caller's role in the project, as `gcloud iam roles create`
            takes it; None allows everything.

    Raises ValueError: the definition has something that the fake does not know.
    """
    gce = StrictGce(machines, policy)
    with serving(gce) as url:
        gce.url = url
        try:
            yield gce
        finally:
            gce.cut_all_power()
    gce.violations.require_none()
