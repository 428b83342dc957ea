"""Credentials for Compute Engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import google.auth
from google.auth import credentials as auth_credentials
from google.auth.exceptions import GoogleAuthError
from google.oauth2 import credentials as oauth2_credentials

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_orchestration.errors import CloudAccessDenied, StoreError
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import (
    API_URLS,
    SCOPES_OPTION,
    CredentialSources,
)

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.options import GcpOptions

#: Of tokens whose end is not known.
_UNKNOWN_LIFE_S: Final = 600.0

#: Any: functions of google-auth have no types.
GoogleCredentials = Any
_AnonymousCredentials: Any = auth_credentials.AnonymousCredentials
_TokenCredentials: Any = oauth2_credentials.Credentials


def credentials_of(
    options: GcpOptions, sources: CredentialSources, scopes: Sequence[str]
) -> GoogleCredentials:
    """Credentials that renew themselves: those of `credential_ref`, or Google's defaults.

    Raises CloudAccessDenied: there are none.
    """
    if options.credential_ref:
        renewed = partial(_renewed, options.credential_ref, sources, scopes)
        return _TokenCredentials(token=None, refresh_handler=renewed)
    if not _is_google(options.endpoint_url):
        return _AnonymousCredentials()
    try:
        found, _ = google.auth.default(scopes=scopes)
    except GoogleAuthError as error:
        raise CloudAccessDenied(
            "there are no credentials for gcp; use `gcloud auth application-default login`,"
            " set GOOGLE_APPLICATION_CREDENTIALS, or name a connection in credential_ref",
            of_credentials=True,
        ) from error
    return found


def _renewed(
    reference: str,
    sources: CredentialSources,
    wanted: Sequence[str],
    request: object,
    scopes: object,
) -> tuple[str, datetime]:
    """A token of a reference and its end, in UTC without a zone as google-auth has it."""
    # Tokens of Cloud Storage are those of all APIs, but for their scopes.
    options = {SCOPES_OPTION: ",".join(wanted)}
    location = Location(API_URLS["gcp"], credential_ref=reference, options=options)
    try:
        found = sources.resolve(location)
    except StoreError as error:
        raise CloudAccessDenied(
            f"the credentials for gcp cannot be used: {error}", of_credentials=True
        ) from error
    if found is None:
        raise CloudAccessDenied(
            f"credentials {reference!r} give no token for gcp; name other ones",
            of_credentials=True,
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
