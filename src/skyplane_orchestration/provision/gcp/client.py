"""Clients of Compute Engine: credentials, timeouts, retries, and the translation of refusals.

The only module of this package that imports Google's SDK. Every method ends at once with an
operation, and `GcpApi.wait` asks for it at the endpoint of the options: the SDK's own
`result()` would ask Google's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import google.auth
from google.api_core.exceptions import GoogleAPICallError, GoogleAPIError, from_http_response
from google.auth import credentials as auth_credentials
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import AuthorizedSession
from google.cloud import compute_v1
from google.oauth2 import credentials as oauth2_credentials
from requests.exceptions import RequestException
from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_random_exponential

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    StoreError,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.gcp.errors import Answer, Refusal, translate
from skyplane_orchestration.provision.gcp.options import GcpOptions
from skyplane_orchestration.provision.gcp.verbs import PERMISSIONS
from skyplane_orchestration.security.credentials import API_URLS, SCOPES_OPTION, CredentialSources

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
#: Waits of 0 to 0.5, 1, 2, ... seconds, 40 s on average together.
_ATTEMPTS: Final = 9
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 20.0
#: Together they are longer than Google takes to show what it has made.
_VISIBLE_WAITS_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_PAGE: Final = 500
#: Of tokens whose end is not known.
_UNKNOWN_LIFE_S: Final = 600.0

_NO_ANSWER: Final = (GoogleAPIError, RequestException, TransportError)

#: Any: functions of google-auth and google-api-core have no types.
_GoogleCredentials = Any
_AnonymousCredentials: Any = auth_credentials.AnonymousCredentials
_TokenCredentials: Any = oauth2_credentials.Credentials
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
        self._credentials: _GoogleCredentials | None = None
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
            self._new_credentials(_IAM_SCOPES),
            permission="the use of the IAM API",
            where=f"service account {account}",
        )

    def _held(
        self,
        resource: str,
        permissions: Collection[str],
        credentials: _GoogleCredentials,
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
        def may_help(state: RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome is not None else None
            if isinstance(error, GoogleAPICallError):
                answer = _answer(error, permission, where)
                return answer.is_transient and answer.reason not in expected
            return isinstance(error, _NO_ANSWER)

        retrying = Retrying(
            sleep=self.clock.sleep,
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S),
            retry=may_help,
            reraise=True,
        )
        try:
            return retrying(send)
        except GoogleAPICallError as error:
            answer = _answer(error, permission, where)
            if answer.reason in expected:
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
                " or correct them"
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
        self, method: str, field: str, request: Mapping[str, Any], *, what: str
    ) -> Iterator[tuple[str, Any]]:
        """Zone and resource of everything that an aggregatedList finds.

        Args:
            field: of the scopes, which has the resources.

        Raises CloudUnavailable: a zone is missing from the list.
        """
        for page in self.pages(method, request, what=what):
            for scope, found in page.items.items():
                if found.warning.code == "UNREACHABLE":
                    raise CloudUnavailable(f"{what}: {scope} does not answer; try again later")
                for resource in getattr(found, field):
                    yield scope.rpartition("/")[2], resource

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
            answer = Answer(
                permission=PERMISSIONS[method][0],
                code=error.code,
                status=operation.http_error_status_code,
                message=error.message,
                where=where or f"project {self._options.project}",
                quota=quota.limit_name if quota else "",
                metric=quota.metric_name if quota else "",
            )
            if answer.reason in expected:
                raise Refusal(answer)
            raise translate(answer, what)

    def until_visible(self, look: Callable[[], T | None]) -> T | None:
        """What `look` finds within half a minute; None for nothing."""
        for wait_s in _VISIBLE_WAITS_S:
            found = look()
            if found is not None:
                return found
            self.clock.sleep(wait_s)
        return look()

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
        return client

    def _current_credentials(self) -> _GoogleCredentials:
        with self._lock:
            if self._credentials is None:
                self._credentials = self._new_credentials(_SCOPES)
            return self._credentials

    def _new_credentials(self, scopes: Sequence[str]) -> _GoogleCredentials:
        """Credentials that renew themselves. Raises CloudAccessDenied: there are none."""
        if self._options.credential_ref:
            return _TokenCredentials(token=None, refresh_handler=partial(self._renewed, scopes))
        if not _is_google(self._options.endpoint_url):
            return _AnonymousCredentials()
        try:
            found, _ = google.auth.default(scopes=scopes)
        except GoogleAuthError as error:
            raise CloudAccessDenied(
                "there are no credentials for gcp; use `gcloud auth application-default login`,"
                " set GOOGLE_APPLICATION_CREDENTIALS, or name a connection in credential_ref"
            ) from error
        return found

    def _renewed(
        self, wanted: Sequence[str], request: object, scopes: object
    ) -> tuple[str, datetime]:
        """A token of `credential_ref` and its end, in UTC without a zone as google-auth has it."""
        reference = self._options.credential_ref
        # Tokens of Cloud Storage are those of all APIs, but for their scopes.
        options = {SCOPES_OPTION: ",".join(wanted)}
        location = Location(API_URLS["gcp"], credential_ref=reference, options=options)
        try:
            found = self._sources.resolve(location)
        except StoreError as error:
            raise CloudAccessDenied(f"the credentials for gcp cannot be used: {error}") from error
        if found is None:
            raise ConfigurationInvalid(
                f"credentials {reference!r} give no token for gcp; name other ones"
            )
        # google-auth compares it with the system's clock.
        ends_unix_s = float(found.get("expires_at", SYSTEM_CLOCK.wall() + _UNKNOWN_LIFE_S))
        return found["access_token"], datetime.fromtimestamp(ends_unix_s, UTC).replace(tzinfo=None)


def _is_google(endpoint_url: str) -> bool:
    """Whether an endpoint may see the credentials of this process."""
    if not endpoint_url:
        return True
    parts = urlsplit(endpoint_url)
    return parts.scheme == "https" and (parts.hostname or "").endswith(".googleapis.com")


def _answer(error: GoogleAPICallError, permission: str, where: str) -> Answer:
    reasons = [entry.get("reason", "") for entry in error.errors if isinstance(entry, dict)]
    return Answer(
        permission=permission,
        code=next(filter(None, reasons), ""),
        status=int(error.code or 0),
        message=str(error.message),
        where=where,
    )
