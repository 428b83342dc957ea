"""Clients of Azure's Resource Manager: credentials, timeouts, retries, long operations, refusals.

The only module of this package that imports Azure's SDK.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from azure.core import PipelineClient
from azure.core.credentials import AccessToken, TokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
)
from azure.core.paging import ItemPaged
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, SansIOHTTPPolicy
from azure.core.polling import LROPoller
from azure.core.rest import HttpRequest, HttpResponse
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.core.polling.arm_polling import ARMPolling
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resource.resources import ResourceManagementClient
from tenacity import RetryCallState

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import CloudAccessDenied, CloudUnavailable, StoreError
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.azure.error_mapping import NOT_FOUND, answered, translate
from skyplane_orchestration.provision.azure.options import AzureOptions, Resource
from skyplane_orchestration.provision.azure.permissions import action_of
from skyplane_orchestration.provision.fleet.error_rules import Answer, Refusal
from skyplane_orchestration.provision.fleet.retries import random_wait_s, retrying
from skyplane_orchestration.security.store_credentials import (
    API_URLS,
    SCOPES_OPTION,
    CredentialSources,
)

T = TypeVar("T")
#: A method of the SDK that begins an operation; gets how to wait for its end.
Begin = Callable[["Polling"], LROPoller[Any]]

_AZURE: Final = "https://management.azure.com"
_CONNECT_TIMEOUT_S: Final = 10
_READ_TIMEOUT_S: Final = 60
#: The longest wait that Azure may ask for, seen in `Retry-After`.
_MOST_RETRY_AFTER_S: Final = 120.0
#: Until the next look at an operation, where Azure does not say.
_POLL_S: Final = 3.0
#: Longest time of an operation; machines take one or two minutes.
_OPERATION_S: Final = 600.0
#: Of tokens whose end is not known.
_UNKNOWN_LIFE_S: Final = 600.0


class Polling(ARMPolling):
    """Waits for the end of an operation with a clock of ours.

    Raises CloudUnavailable: it takes too long.
    """

    def __init__(self, clock: Clock, what: str) -> None:
        super().__init__(timeout=_POLL_S)
        self._clock = clock
        self._what = what
        self._deadline_s = clock.monotonic() + _OPERATION_S

    @property
    def first_request(self) -> Any:
        """The request that began the operation; None before it was answered."""
        first = getattr(self, "_initial_response", None)
        return None if first is None else first.http_request

    def _sleep(self, delay: float) -> None:
        if self._clock.monotonic() >= self._deadline_s:
            raise CloudUnavailable(f"{self._what}: Azure has not done it after {_OPERATION_S:g} s")
        self._clock.sleep(delay)


class _Hearing(SansIOHTTPPolicy[Any, Any]):
    """Tells a clock the `Date` of answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_response(self, request: Any, response: Any) -> None:
        self._clock.hear(response.http_response.headers.get("Date"))


class AzureApi:
    """Calls of the Resource Manager; threads may share it.

    Args:
        options: subscription, credentials and endpoint.
        sources: resolves `credential_ref`.
        clock: sleeps between attempts.
    """

    def __init__(
        self, options: AzureOptions, sources: CredentialSources, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._options = options
        self._sources = sources
        self.clock = clock
        self._lock = threading.Lock()
        self._clients: dict[type, Any] = {}

    @property
    def compute(self) -> ComputeManagementClient:
        """Raises CloudAccessDenied: there are no credentials."""
        return cast("ComputeManagementClient", self._client(ComputeManagementClient))

    @property
    def network(self) -> NetworkManagementClient:
        return cast("NetworkManagementClient", self._client(NetworkManagementClient))

    @property
    def resources(self) -> ResourceManagementClient:
        return cast("ResourceManagementClient", self._client(ResourceManagementClient))

    def call(
        self, what: str, where: str, request: Callable[[], T], *, expected: Collection[str] = ()
    ) -> T:
        """The answer to an idempotent request, which is repeated after throttling and faults.

        Args:
            what: begins the message of an error.
            where: region tag, or what else is asked.
            expected: codes of refusals that the caller handles.

        Raises:
            Refusal: one with an expected code.
            CloudAccessDenied, CloudUnavailable, QuotaExceeded, CapacityUnavailable,
                ConfigurationInvalid: see `translate`.
        """
        return self._repeated(what, where, request, lambda: None, expected)

    def get(self, what: str, where: str, request: Callable[[], Mapping[str, Any]]) -> Resource:
        """A resource. Raises Refusal: there is none; else as `call`."""
        found = self.call(what, where, request, expected=NOT_FOUND)
        return as_json(found)

    def finished(
        self, what: str, where: str, begin: Begin, *, expected: Collection[str] = ()
    ) -> Resource:
        """The result of an idempotent operation, once it has ended. Raises as `call`."""
        polling: Polling | None = None

        def run() -> Any:
            nonlocal polling
            polling = Polling(self.clock, what)
            return begin(polling).result()

        def first_request() -> Any:
            return None if polling is None else polling.first_request

        return as_json(self._repeated(what, where, run, first_request, expected))

    def begin(
        self, what: str, where: str, begin: Callable[[], object], *, expected: Collection[str] = ()
    ) -> None:
        """Begin an operation, and do not wait for its end. Raises as `call`."""
        self.call(what, where, begin, expected=expected)

    def listed(
        self,
        what: str,
        where: str,
        request: Callable[[], ItemPaged[Any]],
        *,
        expected: Collection[str] = (),
    ) -> Iterator[Resource]:
        """The resources of all pages of a list. Raises as `call`."""
        pages = request().by_page()
        while True:
            page = self.call(what, where, lambda: next(pages, None), expected=expected)
            if page is None:
                return
            for found in page:
                yield as_json(found)

    def read(self, what: str, where: str, path: str) -> Resource:
        """What the Resource Manager has at a path, or at the address of a next page.

        For what none of the SDK's packages here has a method. Raises as `call`.
        """
        endpoint, scope = self._endpoint_and_scope()
        credential = credential_of(self._options, self._sources, scope)
        policy = self._policy_of(endpoint) or BearerTokenCredentialPolicy(credential, scope)

        def ask() -> Resource:
            with PipelineClient[HttpRequest, HttpResponse](
                base_url=endpoint, policies=[policy]
            ) as client:
                response = client.send_request(
                    HttpRequest("GET", client.format_url(path)),
                    connection_timeout=_CONNECT_TIMEOUT_S,
                    read_timeout=_READ_TIMEOUT_S,
                )
                response.raise_for_status()
                return cast("Resource", response.json())

        return self.call(what, where, ask)

    def download(self, what: str, where: str, url: str, *, most_bytes: int) -> bytes:
        """The end of what a signed address has; nothing if there is none. Raises as `call`."""

        def fetch() -> bytes:
            with PipelineClient[HttpRequest, HttpResponse](base_url="", policies=[]) as client:
                response = client.send_request(
                    HttpRequest("GET", url, headers={"Range": f"bytes=-{most_bytes}"}),
                    connection_timeout=_CONNECT_TIMEOUT_S,
                    read_timeout=_READ_TIMEOUT_S,
                )
                if response.status_code in (404, 416):
                    return b""
                response.raise_for_status()
                return response.content

        return self.call(what, where, fetch)

    def _repeated(
        self,
        what: str,
        where: str,
        request: Callable[[], T],
        first_request: Callable[[], Any],
        expected: Collection[str],
    ) -> T:
        def answer_of(error: HttpResponseError) -> Answer:
            return _answer(error, first_request(), where)

        def may_help(error: BaseException) -> bool:
            if isinstance(error, HttpResponseError) and _is_answer(error):
                answer = answer_of(error)
                return answer.is_transient and answer.code not in expected
            return isinstance(error, AzureError) and not _is_bad_credential(error)

        repeated = retrying(
            self.clock,
            may_help,
            has_answer=lambda error: isinstance(error, HttpResponseError) and _is_answer(error),
            wait_s=_wait_s,
        )
        try:
            return repeated(request)
        except AzureError as error:
            if isinstance(error, HttpResponseError) and _is_answer(error):
                answer = answer_of(error)
                if answer.code in expected:
                    raise Refusal(answer) from error
                raise translate(answer, what) from error
            if _is_bad_credential(error):
                raise CloudAccessDenied(
                    f"{what}: the credentials for azure cannot be used; use `az login`, set"
                    " AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or name a"
                    f" connection in credential_ref ({error.message})",
                    of_credentials=True,
                ) from error
            raise CloudUnavailable(
                f"{what}: Azure does not answer ({type(error).__name__}); check the network and"
                " the endpoint"
            ) from error

    def _client(self, kind: type) -> Any:
        with self._lock:
            client = self._clients.get(kind)
            if client is None:
                client = self._clients[kind] = self._new_client(kind)
        return client

    def _new_client(self, kind: Callable[..., Any]) -> Any:
        endpoint, scope = self._endpoint_and_scope()
        more: dict[str, Any] = {}
        if policy := self._policy_of(endpoint):
            more["authentication_policy"] = policy
        return kind(
            credential=credential_of(self._options, self._sources, scope),
            subscription_id=self._options.subscription_id,
            base_url=endpoint,
            credential_scopes=[scope],
            connection_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            # `call` retries, with the clock of the caller.
            retry_total=0,
            per_call_policies=[_Hearing(self.clock)],
            **more,
        )

    def _endpoint_and_scope(self) -> tuple[str, str]:
        endpoint = self._options.endpoint_url or _AZURE
        return endpoint, f"{endpoint.rstrip('/')}/.default"

    def _policy_of(self, endpoint: str) -> SansIOHTTPPolicy[Any, Any] | None:
        """In place of the SDK's own, which sends tokens by TLS only."""
        return SansIOHTTPPolicy() if endpoint.startswith("http://") else None


def as_json(found: Any) -> Resource:
    """A model of the SDK as Azure's JSON; empty for an operation without a result."""
    return {} if found is None else cast("Resource", found.as_dict())


def _is_answer(error: HttpResponseError) -> bool:
    """Whether Azure has answered, and not something else such as a proxy."""
    return error.response is not None and not isinstance(error, DecodeError)


def _is_bad_credential(error: AzureError) -> bool:
    return isinstance(error, ClientAuthenticationError) and error.response is None


def _answer(error: HttpResponseError, first_request: Any, where: str) -> Answer:
    response = cast("Any", error.response)
    # An operation that failed is told of by a request that looks at it.
    is_failed_operation = response.status_code < 400 and first_request is not None
    request = first_request if is_failed_operation else response.request
    told = error.error
    return answered(
        action_of(request.method, request.url),
        str(getattr(told, "code", "") or ""),
        int(response.status_code),
        str(getattr(told, "message", "") or error.reason or ""),
        where,
    )


def _wait_s(state: RetryCallState) -> float:
    """A random time that doubles, and at least as long as Azure asks for."""
    error = state.outcome.exception() if state.outcome is not None else None
    response = error.response if isinstance(error, HttpResponseError) else None
    asked = str(cast("Any", response).headers.get("Retry-After", "")) if response else ""
    least_s = min(float(asked), _MOST_RETRY_AFTER_S) if asked.isdecimal() else 0.0
    return max(random_wait_s(state), least_s)


def credential_of(options: AzureOptions, sources: CredentialSources, scope: str) -> TokenCredential:
    """Tokens of `credential_ref`, or else of azure-identity's chain."""
    if options.credential_ref or options.endpoint_url.startswith("http://"):
        return _ReferenceCredential(options.credential_ref, sources, scope)
    # msal takes long to import, and only the chain needs it here.
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


class _ReferenceCredential:
    """See `TokenCredential`. The SDK asks again some minutes before a token ends."""

    def __init__(self, reference: str, sources: CredentialSources, scope: str) -> None:
        self._reference = reference
        self._sources = sources
        self._scope = scope

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """Raises CloudAccessDenied."""
        # Principals of storage are those of all services, but for the scope of their tokens.
        location = Location(
            API_URLS["azure"],
            credential_ref=self._reference,
            options={SCOPES_OPTION: self._scope},
        )
        try:
            found = self._sources.resolve(location)
        except StoreError as error:
            raise CloudAccessDenied(
                f"the credentials for azure cannot be used: {error}", of_credentials=True
            ) from error
        if found is None or not found.get("bearer_token"):
            raise CloudAccessDenied(
                f"{self._reference} has no service principal (tenant_id, client_id,"
                " client_secret), which azure needs to launch instances",
                of_credentials=True,
            )
        ends_s = float(found.get("expires_at") or time.time() + _UNKNOWN_LIFE_S)
        return AccessToken(found["bearer_token"], int(ends_s))
