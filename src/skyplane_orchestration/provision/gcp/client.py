"""Clients of Compute Engine: timeouts, retries, and the translation of refusals.

The only module of this package that imports Google's SDK. Every method ends at once with an
operation, and `GcpApi.done` asks for it at the endpoint of the options: the SDK's own `result()`
would ask Google's.
"""

from __future__ import annotations

import re
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

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import CloudAccessDenied, CloudUnavailable, SkyplaneError
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, ErrorResponse
from skyplane_orchestration.provision.fleet.retries import ask, until_visible
from skyplane_orchestration.provision.gcp.error_mapping import (
    NOT_FOUND,
    PERMISSIONS,
    response_of,
    translate,
)
from skyplane_orchestration.provision.gcp.options import GcpOptions, region_of_zone
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
#: Of tokens whose end is not known.
_UNKNOWN_LIFE_S: Final = 600.0

#: Any: functions of google-auth and google-api-core have no types.
GoogleCredentials = Any
_AnonymousCredentials: Any = auth_credentials.AnonymousCredentials
_TokenCredentials: Any = oauth2_credentials.Credentials
_AuthorizedSession: Any = AuthorizedSession
_error_of_response: Any = from_http_response


class GcpApi:
    """Calls of Compute Engine; threads may share it. Its arguments are those of `GcpCloud`."""

    def __init__(
        self, options: GcpOptions, sources: CredentialSources, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.options = options
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
            CloudRefusal: one with an expected code.
            CloudAccessDenied, CloudUnavailable, QuotaExceeded, CapacityUnavailable,
                ConfigurationInvalid: see `translate`.
        """
        noun, _, verb = method.partition(".")
        client, name = self._client(noun), _in_python(verb)
        # A method that begins an operation has two forms; the other one would wait.
        send = getattr(client, f"{name}_unary", None) or getattr(client, name)
        return self._repeated(
            partial(
                send,
                request={"project": self.options.project, **request},
                retry=None,
                timeout=_WAIT_TIMEOUT_S if verb == "wait" else _TIMEOUT_S,
            ),
            permission=PERMISSIONS[method][0],
            what=what,
            where=where or f"project {self.options.project}",
            expected=expected,
        )

    def find(
        self, method: str, request: Mapping[str, Any], *, what: str, where: str = ""
    ) -> Any | None:
        """`call` of a method that gets something; None if there is none of its name."""
        try:
            return self.call(method, request, what=what, where=where, expected=NOT_FOUND)
        except CloudRefusal:
            return None

    def done(
        self,
        method: str,
        request: Mapping[str, Any],
        *,
        what: str,
        where: str = "",
        expected: Collection[str] = (),
    ) -> None:
        """`call` of a method that begins an operation, and a wait for its end.

        Raises: as `call`, and CloudUnavailable for one that takes too long.
        """
        operation = self.call(method, request, what=what, where=where, expected=expected)
        zone = operation.zone.rpartition("/")[2]
        verb = "zoneOperations.wait" if zone else "globalOperations.wait"
        asked = {name: request[name] for name in ("project", "zone") if name in request}
        asked["operation"] = operation.name
        deadline_s = self.clock.monotonic() + _OPERATION_S
        while operation.status != compute_v1.Operation.Status.DONE:
            if self.clock.monotonic() >= deadline_s:
                raise CloudUnavailable(
                    f"{what}: Google Cloud has not done it after {_OPERATION_S:g} s"
                )
            operation = self.call(verb, asked, what=what, where=where)
            if operation.status != compute_v1.Operation.Status.DONE:
                # Google may answer a wait early.
                self.clock.sleep(1.0)
        for error in operation.error.errors:
            quotas = [detail.quota_info for detail in error.error_details]
            quota = next((one for one in quotas if one.limit_name), None)
            answer = response_of(
                PERMISSIONS[method][0],
                error.code,
                operation.http_error_status_code,
                error.message,
                where or f"project {self.options.project}",
                quota=quota.limit_name if quota else "",
                metric=quota.metric_name if quota else "",
            )
            if answer.code in expected:
                raise CloudRefusal(answer)
            raise translate(answer, what)

    def held_permissions(
        self, permissions: Collection[str], *, project: str = "", account: str = ""
    ) -> frozenset[str]:
        """Those that the credentials have for a project, or for the email of a service account.

        Raises as `call`.
        """
        if account:
            base, path, api = _IAM, f"projects/-/serviceAccounts/{account}", "the IAM API"
            credentials = credentials_of(self.options, self._sources, _IAM_SCOPES)
            where = f"service account {account}"
        else:
            base, path, api = _RESOURCE_MANAGER, f"projects/{project}", "Resource Manager"
            credentials = self._current_credentials()
            where = f"project {project}"
        session = _AuthorizedSession(credentials)

        def send() -> Any:
            response = session.post(
                f"{self.options.endpoint_url or base}/v1/{path}:testIamPermissions",
                json={"permissions": sorted(permissions)},
                timeout=_TIMEOUT_S,
            )
            if response.status_code >= 400:
                raise _error_of_response(response)
            return response.json()

        answer = self._repeated(
            send,
            permission=f"the use of {api}",
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
        def meaning(error: BaseException) -> ErrorResponse | SkyplaneError | None:
            if isinstance(error, GoogleAPICallError):
                reasons = [one.get("reason", "") for one in error.errors if isinstance(one, dict)]
                code, status = next(filter(None, reasons), ""), int(error.code or 0)
                return response_of(permission, code, status, str(error.message), where)
            if isinstance(error, GoogleAuthError) and not isinstance(error, TransportError):
                return CloudAccessDenied(
                    f"{what}: the credentials for gcp cannot be used ({type(error).__name__});"
                    " renew or correct them",
                    of_credentials=True,
                )
            return None

        return ask(
            send,
            self.clock,
            "Google Cloud",
            what,
            errors=(GoogleAPIError, GoogleAuthError, RequestException),
            meaning=meaning,
            translate=translate,
            expected=expected,
        )

    def pages(self, method: str, request: Mapping[str, Any], *, what: str) -> Iterator[Any]:
        """All pages of a list call."""
        token = ""
        while True:
            page = self.call(
                method, {"max_results": 500, **request, "page_token": token}, what=what
            )
            yield page
            token = page.next_page_token
            if not token:
                return

    def in_zones(
        self, kind: str, filter_: str, *, what: str, regions: Collection[str] | None
    ) -> Iterator[tuple[str, Any]]:
        """Zone and resource of everything of a kind that a filter chooses. One call per page.

        Args:
            kind: as Google names it, `machineTypes`.
            regions: tags of the regions whose zones count, and have to answer; None for all zones
                that do.

        Raises CloudUnavailable: a zone of the regions is missing from the list.
        """
        for page in self.pages(f"{kind}.aggregatedList", {"filter": filter_}, what=what):
            zones = {scope.rpartition("/")[2]: found for scope, found in page.items.items()}
            silent = [zone for zone, found in zones.items() if found.warning.code == "UNREACHABLE"]
            needed = sorted(zone for zone in silent if region_of_zone(zone) in (regions or ()))
            if needed:
                error = CloudUnavailable(
                    f"{what}: {', '.join(needed)} does not answer; try again later"
                )
                error.regions = tuple(sorted({region_of_zone(zone) for zone in needed}))
                raise error
            for zone, found in zones.items():
                if regions is None or region_of_zone(zone) in regions:
                    yield from ((zone, one) for one in getattr(found, _in_python(kind)))

    def until_visible(self, look: Callable[[], T | None]) -> T | None:
        return until_visible(self.clock, look)

    def _client(self, name: str) -> Any:
        """One client for all threads."""
        with self._lock:
            client = self._clients.get(name)
            if client is None:
                endpoint = self.options.endpoint_url
                kind = getattr(compute_v1, f"{name[0].upper()}{name[1:]}Client")
                client = self._clients[name] = kind(
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
                self._credentials = credentials_of(self.options, self._sources, _SCOPES)
            return self._credentials


def _in_python(name: str) -> str:
    """A name of the API as the SDK has it: `machine_types` of `machineTypes`."""
    return re.sub(r"([A-Z])", r"_\1", name).lower()


def credentials_of(
    options: GcpOptions, sources: CredentialSources, wanted: Sequence[str]
) -> GoogleCredentials:
    """Credentials that renew themselves: those of `credential_ref`, or Google's defaults.

    Raises CloudAccessDenied: there are none.
    """
    reference = options.credential_ref

    def renewed(request: object, scopes: object) -> tuple[str, datetime]:
        """A token of the reference and its end, in UTC without a zone as google-auth has it."""
        found = sources.of_cloud("gcp", reference, ",".join(wanted))
        if found is None:
            raise CloudAccessDenied(
                f"credentials {reference!r} give no token for gcp; name other ones",
                of_credentials=True,
            )
        # google-auth compares it with the system's clock.
        ends_unix_s = float(found.get("expires_at", SYSTEM_CLOCK.wall() + _UNKNOWN_LIFE_S))
        return found["access_token"], datetime.fromtimestamp(ends_unix_s, UTC).replace(tzinfo=None)

    if reference:
        return _TokenCredentials(token=None, refresh_handler=renewed)
    parts = urlsplit(options.endpoint_url or "https://compute.googleapis.com")
    if parts.scheme != "https" or not (parts.hostname or "").endswith(".googleapis.com"):
        return _AnonymousCredentials()  # Nobody else may see those of this process.
    try:
        found, _ = google.auth.default(scopes=wanted)
    except GoogleAuthError as error:
        raise CloudAccessDenied(
            "there are no credentials for gcp; use `gcloud auth application-default login`,"
            " set GOOGLE_APPLICATION_CREDENTIALS, or name a connection in credential_ref",
            of_credentials=True,
        ) from error
    return found
