"""Google credentials: tokens of limited life for gateways, and the platform's own identity.

A gateway never gets a key file. The orchestrator exchanges keys and its own identity for access
tokens, and renews them while a transfer runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, Final

import google.auth
import google.auth.credentials
import google.auth.impersonated_credentials
import google.oauth2.credentials
import google.oauth2.service_account
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport.requests import Request

from skyplane_gateway.common.errors import ConfigurationInvalid, CredentialsExpired
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.gcs.endpoints import is_google
from skyplane_gateway.stores.gcs.error_mapping import mapped
from skyplane_gateway.stores.response_validation import UNREADABLE, NoAnswer

#: Objects and listings; no change of buckets, permissions or policies.
SCOPES: Final = ("https://www.googleapis.com/auth/devstorage.read_write",)
#: Needed to act as another service account, and for tokens that are limited to places.
CLOUD_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
#: Google's SDKs send no credentials where this variable names an emulator.
EMULATOR: Final = "STORAGE_EMULATOR_HOST"

#: Any: google-auth's functions have no types.
GoogleCredentials = Any
_AnonymousCredentials: Any = google.auth.credentials.AnonymousCredentials
_ImpersonatedCredentials: Any = google.auth.impersonated_credentials.Credentials
_TokenCredentials: Any = google.oauth2.credentials.Credentials
_ServiceAccountCredentials: Any = google.oauth2.service_account.Credentials


def ambient_credentials(
    profile: str | None = None, endpoint_url: str = "", scopes: str = ""
) -> Credentials | None:
    """A token of Application Default Credentials; None where this process has none.

    None also for an endpoint that is not Google's, which must not see a token.

    Raises:
        ConfigurationInvalid: a profile is given (Google has none), or the key file is no such file.
        Unauthenticated, StoreUnavailable: Google gives no token.
    """
    if profile is not None:
        raise ConfigurationInvalid(
            f"credentials profile:{profile}: Google Cloud has no profiles; use env:PREFIX, a "
            "connection, or `gcloud auth application-default login`"
        )
    if not is_google(endpoint_url or os.environ.get(EMULATOR)):
        return None
    found = _default(_listed(scopes) or [*SCOPES])
    return None if found is None else token_of(found, "the credentials of this process")


def sendable_credentials(values: Mapping[str, str]) -> Credentials | None:
    """A token for credentials that a user named.

    Args:
        values: `access_token`; or `service_account_json`, `service_account_file`, else Application
            Default Credentials. `impersonate` names service accounts, separated by commas: the
            last is used, the others delegate to it. `scopes` is separated by commas.

    Raises:
        ConfigurationInvalid: a key is not that of a service account.
        Unauthenticated, StoreUnavailable: Google gives no token.
    """
    if token := values.get("access_token"):
        more = {name: values[name] for name in ("expires_at",) if values.get(name)}
        return Credentials({"access_token": token, **more})
    scopes = _listed(values.get("scopes", "")) or list(SCOPES)
    chain = _listed(values.get("impersonate", ""))
    found = _source_of(values, [CLOUD_SCOPE] if chain else scopes)
    if found is None:
        return None
    if chain:
        with mapped(f"acting as {chain[-1]}"):
            found = _ImpersonatedCredentials(
                source_credentials=found,
                target_principal=chain[-1],
                delegates=chain[:-1],
                target_scopes=scopes,
            )
    return token_of(found, f"the credentials of {chain[-1]}" if chain else "the given credentials")


def session_credentials(opened: Callable[[], GoogleCredentials]) -> Credentials | None:
    """A token of credentials that another library holds.

    Raises:
        Unauthenticated, StoreUnavailable: Google gives no token.
    """
    with mapped("reading the credentials of the connection"):
        found = opened()
    return token_of(found, "the credentials of the connection")


def google_credentials(spec: StoreSpec, credentials: Credentials | None) -> GoogleCredentials:
    """The credentials of requests to a store.

    None are sent to an endpoint that is not Google's, unless they were given for it.

    Raises:
        ConfigurationInvalid: there is no token in them.
        Unauthenticated: this machine has no identity of its own.
    """
    if spec.option("anonymous") == "true":
        return _AnonymousCredentials()
    if credentials is not None:
        token = credentials.get("access_token")
        if not token:
            raise ConfigurationInvalid("credentials of Google Cloud Storage lack access_token")
        return _TokenCredentials(token)
    if not is_google(spec.endpoint_url):
        return _AnonymousCredentials()
    with mapped(f"reading the credentials for gs://{spec.bucket}"):
        found, _ = google.auth.default(scopes=SCOPES)
    return _checked(found)


def _checked(found: GoogleCredentials) -> GoogleCredentials:
    """The credentials, whose refresh takes no other answer for a token; google-auth takes any."""
    inner = found.refresh

    def refresh(request: Any) -> None:
        try:
            inner(request)
        except UNREADABLE as error:
            if isinstance(error, GoogleAuthError):
                raise
            raise NoAnswer(f"is no token ({type(error).__name__})") from error
        if not isinstance(found.token, str) or not found.token:
            raise NoAnswer("is no token")

    found.refresh = refresh
    return found


def _source_of(values: Mapping[str, str], scopes: list[str]) -> GoogleCredentials:
    if path := values.get("service_account_file"):
        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123
                text = file.read()
        except OSError as error:
            raise ConfigurationInvalid(
                f"the key file {path!r} cannot be read: {error.strerror}"
            ) from error
    else:
        text = values.get("service_account_json", "")
    if not text:
        return _default(scopes)
    where = f"the key file {path!r}" if path else "the service account's key"
    try:
        info = json.loads(text)
        return _ServiceAccountCredentials.from_service_account_info(info, scopes=scopes)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        # Not the error's own text: it may quote the key.
        raise ConfigurationInvalid(
            f"{where} is not the JSON key of a service account; for other kinds of credentials "
            "set GOOGLE_APPLICATION_CREDENTIALS and give no reference"
        ) from error


def _default(scopes: list[str]) -> GoogleCredentials | None:
    """Application Default Credentials; None where this process has none."""
    try:
        found, _ = google.auth.default(scopes=scopes)
    except DefaultCredentialsError as error:
        if path := os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            raise ConfigurationInvalid(
                f"GOOGLE_APPLICATION_CREDENTIALS names {path!r}, which holds no credentials that "
                "Google's SDK can use; name the JSON key of a service account, or unset it"
            ) from error
        return None
    return found


def token_of(found: GoogleCredentials, what: str) -> Credentials:
    """Raises StoreError: Google gives none."""
    with mapped(f"exchanging {what} for a token"):
        _checked(found).refresh(Request())
    if found.expired:
        raise CredentialsExpired(
            f"exchanging {what} for a token: it has expired already; renew them, or set this "
            "machine's clock"
        )
    values = {"access_token": str(found.token)}
    if found.expiry is not None:
        # google-auth gives UTC without a zone.
        values["expires_at"] = str(int(found.expiry.replace(tzinfo=UTC).timestamp()))
    return Credentials(values)


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
