"""Credentials for Azure's Resource Manager."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from azure.core.credentials import AccessToken, TokenCredential

from skyplane_orchestration.errors import CloudAccessDenied, StoreError
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.credentials import API_URLS, SCOPES_OPTION, CredentialSources

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.options import AzureOptions

#: Of tokens whose end is not known.
_UNKNOWN_LIFE_S = 600.0


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
