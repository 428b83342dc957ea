"""Clients of Compute Engine: timeouts, retries, and the translation of refusals.

With `credentials.py` the only modules of this package that import Google's SDK. Every method
ends at once with an operation, and `GcpApi.wait` asks for it at the endpoint of the options: the
SDK's own `result()` would ask Google's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, from_http_response
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1
from requests.exceptions import RequestException

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
)
from skyplane_orchestration.provision.fleet.error_rules import Answer, Refusal
from skyplane_orchestration.provision.fleet.retries import retrying, until_visible
from skyplane_orchestration.provision.gcp.credentials import GoogleCredentials, credentials_of
from skyplane_orchestration.provision.gcp.error_mapping import answered, translate
from skyplane_orchestration.provision.gcp.options import GcpOptions, region_of_zone
from skyplane_orchestration.provision.gcp.verbs import PERMISSIONS
from skyplane_orchestration.security.store_credentials import CredentialSources

T = TypeVar("T")

#: Of the tokens: Compute Engine, and reading which permissions they have.
_SCOPES: Final = (
    "https://www.googleapis.com/auth/compute",
    "https://www.googleapis.com/auth/cloud-platform.read-only",
)
#: Of the tokens that ask about a service account: that API takes no smaller scope.
_IAM_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_IAM: Final = "https://iam.googleapis.com"
_RESOURCE_MANAGER: Final = "https://cloudresourcemanager.googleapis.com"

_TIMEOUT_S: Final = 60.0
#: Google answers a wait after two minutes at the latest.
_WAIT_TIMEOUT_S: Final = 150.0
#: Longest time of an operation; instances take up to a minute, and those that are refused longer.
_OPERATION_S: Final = 600.0
#: Google may answer a wait early.
_WAIT_PAUSE_S: Final = 1.0
_PAGE: Final = 500
_NO_ANSWER: Final = (GoogleAPIError, RequestException, TransportError)

#: Any: functions of google-auth and google-api-core have no types.
_AuthorizedSession: Any = AuthorizedSession
_error_of_response: Any = from_http_response

_CLIENTS: Final[dict[str, Callable[..., Any]]] = {
    "disks": compute_v1.DisksClient,
    "firewalls": compute_v1.FirewallsClient,
    "globalOperations": compute_v1.GlobalOperationsClient,
    "instances": compute_v1.InstancesClient,
    "machineTypes": compute_v1.MachineTypesClient,
    "projects": compute_v1.ProjectsClient,
    "regions": compute_v1.RegionsClient,
    "zoneOperations": compute_v1.ZoneOperationsClient,
}
#: Method of the API -> method of its client, and the type of its request.
_METHODS: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "disks.aggregatedList": ("aggregated_list", compute_v1.AggregatedListDisksRequest),
    "disks.delete": ("delete_unary", compute_v1.DeleteDiskRequest),
    "firewalls.delete": ("delete_unary", compute_v1.DeleteFirewallRequest),
    "firewalls.get": ("get", compute_v1.GetFirewallRequest),
    "firewalls.insert": ("insert_unary", compute_v1.InsertFirewallRequest),
    "firewalls.list": ("list", compute_v1.ListFirewallsRequest),
    "firewalls.patch": ("patch_unary", compute_v1.PatchFirewallRequest),
    "globalOperations.wait": ("wait", compute_v1.WaitGlobalOperationRequest),
    "instances.aggregatedList": ("aggregated_list", compute_v1.AggregatedListInstancesRequest),
    "instances.delete": ("delete_unary", compute_v1.DeleteInstanceRequest),
    "instances.get": ("get", compute_v1.GetInstanceRequest),
    "instances.getSerialPortOutput": (
        "get_serial_port_output",
        compute_v1.GetSerialPortOutputInstanceRequest,
    ),
    "instances.insert": ("insert_unary", compute_v1.InsertInstanceRequest),
    "instances.setLabels": ("set_labels_unary", compute_v1.SetLabelsInstanceRequest),
    "machineTypes.aggregatedList": (
        "aggregated_list",
        compute_v1.AggregatedListMachineTypesRequest,
    ),
    "projects.get": ("get", compute_v1.GetProjectRequest),
    "regions.list": ("list", compute_v1.ListRegionsRequest),
    "zoneOperations.wait": ("wait", compute_v1.WaitZoneOperationRequest),
}


class GcpApi:
    """Calls of Compute Engine; threads may share it.

    Args:
        options: project, credentials and endpoint.
        sources: resolves `credential_ref`.
        clock: sleeps between attempts.
    """

    def __init__(
        self, options: GcpOptions, sources: CredentialSources, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._options = options
        self._sources = sources
        self.clock = clock
        self._lock = threading.RLock()
        self._credentials: GoogleCredentials | None = None
        self._clients: dict[str, Any] = {}

    def call(
        self,
        method: str,
        request: Mapping[str, Any],
        *,
        what: str,
        where: str = "",
        expected: Collection[str] = (),
    ) -> Any:
        """The answer to an idempotent request, which is repeated after throttling and faults.

        Args:
            method: as Google names it, `instances.insert`.
            request: its fields; `project` is that of the options by default.
            what: begins the message of an error.
            where: region tag, for errors.
            expected: codes of refusals that the caller handles.

        Raises:
            Refusal: one with an expected code.
            CloudAccessDenied, CloudUnavailable, QuotaExceeded, CapacityUnavailable,
                ConfigurationInvalid: see `translate`.
        """
        name, kind = _METHODS[method]
        message = kind(**{"project": self._options.project, **request})
        send = getattr(self._client(method.partition(".")[0]), name)
        timeout_s = _WAIT_TIMEOUT_S if name == "wait" else _TIMEOUT_S
        return self._repeated(
            partial(send, request=message, retry=None, timeout=timeout_s),
            permission=PERMISSIONS[method][0],
            what=what,
            where=where or f"project {self._options.project}",
            expected=expected,
        )

    def done(
        self,
        method: str,
        request: Mapping[str, Any],
        *,
        what: str,
        where: str = "",
        expected: Collection[str] = (),
    ) -> None:
        """`call` of a method that begins an operation, and `wait` for its end."""
        operation = self.call(method, request, what=what, where=where, expected=expected)
        project = str(request.get("project", ""))
        self.wait(operation, method, what=what, where=where, project=project, expected=expected)

    def held_permissions(self, project: str, permissions: Collection[str]) -> frozenset[str]:
        """Those of the permissions that the credentials have for a project. Raises as `call`."""
        base = self._options.endpoint_url or _RESOURCE_MANAGER
        return self._held(
            f"{base}/v1/projects/{project}",
            permissions,
            self._current_credentials(),
            permission="the use of Resource Manager",
            where=f"project {project}",
        )

    def held_on_account(self, account: str, permissions: Collection[str]) -> frozenset[str]:
        """Those of the permissions that the credentials have for a service account.

        Args:
            account: its email address.

        Raises as `call`.
        """
        base = self._options.endpoint_url or _IAM
        return self._held(
            f"{base}/v1/projects/-/serviceAccounts/{account}",
            permissions,
            credentials_of(self._options, self._sources, _IAM_SCOPES),
            permission="the use of the IAM API",
            where=f"service account {account}",
        )

    def _held(
        self,
        resource: str,
        permissions: Collection[str],
        credentials: GoogleCredentials,
        *,
        permission: str,
        where: str,
    ) -> frozenset[str]:
        session = _AuthorizedSession(credentials)

        def ask() -> Any:
            response = session.post(
                f"{resource}:testIamPermissions",
                json={"permissions": sorted(permissions)},
                timeout=_TIMEOUT_S,
            )
            if response.status_code >= 400:
                raise _error_of_response(response)
            return response.json()

        answer = self._repeated(
            ask,
            permission=permission,
            what=f"checking the permissions on {where}",
            where=where,
        )
        return frozenset(answer.get("permissions", ()))

    def _repeated(
        self,
        send: Callable[[], T],
        *,
        permission: str,
        what: str,
        where: str,
        expected: Collection[str] = (),
    ) -> T:
        def may_help(error: BaseException) -> bool:
            if isinstance(error, GoogleAPICallError):
                answer = _answer(error, permission, where)
                return answer.is_transient and answer.code not in expected
            return isinstance(error, _NO_ANSWER)

        repeated = retrying(
            self.clock, may_help, has_answer=lambda error: isinstance(error, GoogleAPICallError)
        )
        try:
            return repeated(send)
        except GoogleAPICallError as error:
            answer = _answer(error, permission, where)
            if answer.code in expected:
                raise Refusal(answer) from error
            raise translate(answer, what) from error
        except _NO_ANSWER as error:
            raise CloudUnavailable(
                f"{what}: Google Cloud does not answer ({type(error).__name__}); check the network"
                " and the endpoint"
            ) from error
        except GoogleAuthError as error:
            raise CloudAccessDenied(
                f"{what}: the credentials for gcp cannot be used ({type(error).__name__}); renew"
                " or correct them",
                of_credentials=True,
            ) from error

    def pages(self, method: str, request: Mapping[str, Any], *, what: str) -> Iterator[Any]:
        """All pages of a list call."""
        token = ""
        while True:
            page = self.call(
                method, {"max_results": _PAGE, **request, "page_token": token}, what=what
            )
            yield page
            token = page.next_page_token
            if not token:
                return

    def in_zones(
        self,
        method: str,
        field: str,
        request: Mapping[str, Any],
        *,
        what: str,
        regions: Collection[str],
    ) -> Iterator[tuple[str, Any]]:
        """Zone and resource of everything that an aggregatedList finds.

        Args:
            field: of the scopes, which has the resources.
            regions: tags of the regions whose zones have to answer.

        Raises CloudUnavailable: a zone of the regions is missing from the list.
        """
        for page in self.pages(method, request, what=what):
            zones = {scope.rpartition("/")[2]: found for scope, found in page.items.items()}
            silent = [zone for zone, found in zones.items() if found.warning.code == "UNREACHABLE"]
            needed = sorted(zone for zone in silent if region_of_zone(zone) in regions)
            if needed:
                error = CloudUnavailable(
                    f"{what}: {', '.join(needed)} does not answer; try again later"
                )
                error.regions = tuple(sorted({region_of_zone(zone) for zone in needed}))
                raise error
            for zone, found in zones.items():
                for resource in getattr(found, field):
                    yield zone, resource

    def wait(
        self,
        operation: Any,
        method: str,
        *,
        what: str,
        where: str = "",
        project: str = "",
        expected: Collection[str] = (),
    ) -> None:
        """Wait for an operation.

        Args:
            method: the one that began it.
            project: as in the request that began it; by default that of the options.

        Raises: as `call`, and CloudUnavailable for one that takes too long.
        """
        zone = operation.zone.rpartition("/")[2]
        request = {"operation": operation.name, "project": project or self._options.project}
        if zone:
            request["zone"] = zone
        verb = "zoneOperations.wait" if zone else "globalOperations.wait"
        deadline_s = self.clock.monotonic() + _OPERATION_S
        while operation.status != compute_v1.Operation.Status.DONE:
            if self.clock.monotonic() >= deadline_s:
                raise CloudUnavailable(
                    f"{what}: Google Cloud has not done it after {_OPERATION_S:g} s"
                )
            operation = self.call(verb, request, what=what, where=where)
            if operation.status != compute_v1.Operation.Status.DONE:
                self.clock.sleep(_WAIT_PAUSE_S)
        for error in operation.error.errors:
            quotas = [detail.quota_info for detail in error.error_details]
            quota = next((one for one in quotas if one.limit_name), None)
            answer = answered(
                PERMISSIONS[method][0],
                error.code,
                operation.http_error_status_code,
                error.message,
                where or f"project {self._options.project}",
                quota=quota.limit_name if quota else "",
                metric=quota.metric_name if quota else "",
            )
            if answer.code in expected:
                raise Refusal(answer)
            raise translate(answer, what)

    def until_visible(self, look: Callable[[], T | None]) -> T | None:
        return until_visible(self.clock, look)

    def _client(self, name: str) -> Any:
        """One client for all threads."""
        with self._lock:
            client = self._clients.get(name)
            if client is None:
                endpoint = self._options.endpoint_url
                client = self._clients[name] = _CLIENTS[name](
                    credentials=self._current_credentials(),
                    client_options={"api_endpoint": endpoint} if endpoint else None,
                )
                # The transport's session, for which the client has no public name.
                client.transport._session.hooks["response"].append(self._hear)
        return client

    def _hear(self, answer: Any, **_: Any) -> None:
        self.clock.hear(answer.headers.get("Date"))

    def _current_credentials(self) -> GoogleCredentials:
        with self._lock:
            if self._credentials is None:
                self._credentials = credentials_of(self._options, self._sources, _SCOPES)
            return self._credentials


def _answer(error: GoogleAPICallError, permission: str, where: str) -> Answer:
    reasons = [entry.get("reason", "") for entry in error.errors if isinstance(entry, dict)]
    code = next(filter(None, reasons), "")
    return answered(permission, code, int(error.code or 0), str(error.message), where)
