"""Calls of Azure's Resource Manager: credentials, timeouts, retries, long operations, refusals.

The only module of this package that imports Azure's SDK: what its packages share. Resources are
named by their paths, with a version of the API for each type.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, cast

from azure.core import PipelineClient
from azure.core.configuration import Configuration
from azure.core.credentials import AccessToken, TokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
)
from azure.core.pipeline.policies import CustomHookPolicy, SansIOHTTPPolicy
from azure.core.rest import HttpRequest, HttpResponse
from azure.mgmt.core import ARMPipelineClient
from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy
from azure.mgmt.core.polling.arm_polling import ARMPolling
from tenacity import RetryCallState

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import CloudAccessDenied, CloudUnavailable, SkyplaneError
from skyplane_orchestration.provision.azure.error_mapping import (
    NOT_FOUND,
    action_of,
    response_of,
    translate,
    type_of,
)
from skyplane_orchestration.provision.azure.options import AzureOptions, Resource, path_of
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, ErrorResponse
from skyplane_orchestration.provision.fleet.retries import ask, random_wait_s
from skyplane_orchestration.security.store_credentials import CredentialSources

_AZURE: Final = "https://management.azure.com"
#: Versions of the API by type, or by provider for its other types: those that azure-mgmt-compute
#: 39.0.0, azure-mgmt-network 33.1.0 and azure-mgmt-resource 26.0.0 send (as read on 2026-11-27).
#: Pages of the requests, at learn.microsoft.com/rest/api: compute/virtual-machines, compute/disks,
#: compute/resource-skus, virtualnetwork/network-security-groups, resources/resource-groups, and
#: authorization/permissions.
_VERSIONS: Final = {
    "Microsoft.Authorization": "2022-04-01",
    "Microsoft.Compute": "2026-04-01",
    "Microsoft.Compute/disks": "2026-03-02",
    "Microsoft.Compute/skus": "2021-07-01",
    "Microsoft.Network": "2026-03-01",
    "Microsoft.Resources": "2025-04-01",
}
#: Seconds.
_TIMEOUTS: Final[dict[str, Any]] = {"connection_timeout": 10, "read_timeout": 60}
#: The longest wait that Azure may ask for, seen in `Retry-After`.
_MOST_RETRY_AFTER_S: Final = 120.0
#: Until the next look at an operation, where Azure does not say.
_POLL_S: Final = 3.0
#: Longest time of an operation; machines take one or two minutes.
_OPERATION_S: Final = 600.0
#: Of tokens whose end is not known.
_UNKNOWN_LIFE_S: Final = 600.0


class _Polling(ARMPolling):
    """Waits for the end of an operation with a clock of ours.

    Raises CloudUnavailable: it takes too long.
    """

    def __init__(self, clock: Clock, what: str) -> None:
        super().__init__(timeout=_POLL_S)
        self._clock = clock
        self._what = what
        self._deadline_s = clock.monotonic() + _OPERATION_S

    def _sleep(self, delay: float) -> None:
        if self._clock.monotonic() >= self._deadline_s:
            raise CloudUnavailable(f"{self._what}: Azure has not done it after {_OPERATION_S:g} s")
        self._clock.sleep(delay)


class AzureApi:
    """Calls of the Resource Manager; threads may share it. Arguments: as of `AzureCloud`."""

    def __init__(
        self, options: AzureOptions, sources: CredentialSources, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.options = options
        self._sources = sources
        self.clock = clock

    def id_of(self, path: str) -> str:
        """The id of the resource at a path, which may be the id."""
        return path if path[0] == "/" else f"/subscriptions/{self.options.subscription_id}/{path}"

    def call(
        self,
        what: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        where: str = "the subscription",
        headers: Mapping[str, str] | None = None,
        expected: Collection[str] = (),
        is_awaited: bool = False,
    ) -> Resource:
        """The answer to an idempotent request, which is repeated after throttling and faults.

        Args:
            what: begins the message of an error.
            method: of HTTP.
            path: id of a resource, or what follows the subscription in it, with its query; or the
                address of a next page.
            where: region tag, or what else is asked.
            headers: conditions of the request.
            expected: codes of refusals that the caller handles.
            is_awaited: wait for the end of the operation that the request begins; one that fails
                is a refusal.

        Raises:
            CloudRefusal: one with an expected code.
            CloudAccessDenied, CloudUnavailable, QuotaExceeded, CapacityUnavailable,
                ConfigurationInvalid: see `translate`.
        """

        def send() -> Resource:
            sent = {"Accept": "application/json", **(headers or {})}
            request = HttpRequest(method, self.url_of(path), headers=sent, json=body)
            # The answer as `ARMPolling` takes it; the SDK's own packages ask for it so.
            answer: Any = self._client.send_request(request, _return_pipeline_response=True)
            answer.http_response.raise_for_status()
            if is_awaited:
                polling = _Polling(self.clock, what)
                polling.initialize(self._client, answer, lambda _: None)
                polling.run()
            response: HttpResponse = answer.http_response
            try:
                return cast("Resource", response.json()) if response.content else {}
            except ValueError as error:
                raise DecodeError(message=str(error), response=response, error=error) from error

        return ask(
            send,
            self.clock,
            "Azure",
            what,
            errors=(AzureError,),
            meaning=lambda error: self._meaning(error, what, where, method, path),
            translate=translate,
            expected=expected,
            wait_s=_wait_s,
        )

    def _meaning(
        self, error: BaseException, what: str, where: str, method: str, path: str
    ) -> ErrorResponse | SkyplaneError | None:
        """What Azure refused; None if something else may have answered, such as a proxy."""
        if not isinstance(error, HttpResponseError):
            return None
        response: Any = error.response
        if response is None and isinstance(error, ClientAuthenticationError):
            return CloudAccessDenied(
                f"{what}: the credentials for azure cannot be used; use `az login`, set"
                " AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or name a"
                f" connection in credential_ref ({error.message})",
                of_credentials=True,
            )
        if response is None or isinstance(error, DecodeError):
            return None
        asked = response.request
        # A good status with an error in it is the answer of a poll: the operation has failed.
        is_poll = response.status_code < 400
        return response_of(
            action_of(method, self.id_of(path)) if is_poll else action_of(asked.method, asked.url),
            str(getattr(error.error, "code", "") or ""),
            int(response.status_code),
            str(getattr(error.error, "message", "") or error.reason or ""),
            where,
        )

    def find(self, what: str, path: str) -> Resource | None:
        """A resource; None if there is none. Raises as `call`."""
        try:
            return self.call(what, "GET", path, expected=NOT_FOUND)
        except CloudRefusal:
            return None

    def listed(self, what: str, path: str, *, expected: Collection[str] = ()) -> Iterator[Resource]:
        """The resources of all pages of a list. Raises as `call`."""
        while path:
            page = self.call(what, "GET", path, expected=expected)
            yield from page.get("value") or ()
            path = page.get("nextLink") or ""

    def in_group(self, group: str, kind: str = "") -> list[Resource]:
        """The resources of a group, of one type or of all; none if there is no such group."""
        path = path_of(group, kind) if kind else f"resourceGroups/{group}/resources"
        try:
            return list(self.listed(f"looking for resources in {group}", path, expected=NOT_FOUND))
        except CloudRefusal:
            return []

    def download(self, what: str, url: str, *, most_bytes: int) -> bytes:
        """The end of what a signed address has, if it has any. Raises CloudUnavailable."""

        def fetch() -> bytes:
            with PipelineClient[HttpRequest, HttpResponse](base_url="", policies=[]) as client:
                request = HttpRequest("GET", url, headers={"Range": f"bytes=-{most_bytes}"})
                response = client.send_request(request, **_TIMEOUTS)
                if response.status_code in (404, 416):
                    return b""
                response.raise_for_status()
                return response.content

        return ask(
            fetch,
            self.clock,
            "Azure",
            what,
            errors=(AzureError,),
            meaning=lambda _: None,
            translate=translate,
        )

    def url_of(self, path: str) -> str:
        """The address of a path, with the version of the API."""
        if "://" in path:
            return path
        whole = self.id_of(path)
        kind = type_of(whole)
        version = _VERSIONS.get(kind) or _VERSIONS[kind.partition("/")[0]]
        endpoint = (self.options.endpoint_url or _AZURE).rstrip("/")
        return f"{endpoint}{whole}{'&' if '?' in path else '?'}api-version={version}"

    @cached_property
    def _client(self) -> ARMPipelineClient[HttpRequest, HttpResponse]:
        """Raises CloudAccessDenied: there are no credentials."""
        endpoint = self.options.endpoint_url or _AZURE
        config = Configuration[HttpRequest, HttpResponse]()
        config.custom_hook_policy = CustomHookPolicy(
            raw_response_hook=lambda one: self.clock.hear(one.http_response.headers.get("Date"))
        )
        if endpoint.startswith("http://"):
            # The SDK's own policy sends tokens by TLS only.
            config.authentication_policy = SansIOHTTPPolicy()
        else:
            scope = f"{endpoint.rstrip('/')}/.default"
            credential = credential_of(self.options, self._sources, scope)
            config.authentication_policy = ARMChallengeAuthenticationPolicy(credential, scope)
        # No policy of retries: `call` repeats, with the clock of the caller.
        return ARMPipelineClient(base_url=endpoint, config=config, **_TIMEOUTS)


def _wait_s(state: RetryCallState) -> float:
    """A random time that doubles, and at least as long as Azure asks for."""
    error = state.outcome.exception() if state.outcome is not None else None
    response = error.response if isinstance(error, HttpResponseError) else None
    asked = str(cast("Any", response).headers.get("Retry-After", "")) if response else ""
    least_s = min(float(asked), _MOST_RETRY_AFTER_S) if asked.isdecimal() else 0.0
    return max(random_wait_s(state), least_s)


def credential_of(options: AzureOptions, sources: CredentialSources, scope: str) -> TokenCredential:
    """Tokens of `credential_ref`, or else of azure-identity's chain."""
    if options.credential_ref:
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
        found = self._sources.of_cloud("azure", self._reference, self._scope)
        if found is None or not found.get("bearer_token"):
            raise CloudAccessDenied(
                f"{self._reference} has no service principal (tenant_id, client_id,"
                " client_secret), which azure needs to launch instances",
                of_credentials=True,
            )
        ends_s = float(found.get("expires_at") or time.time() + _UNKNOWN_LIFE_S)
        return AccessToken(found["bearer_token"], int(ends_s))
