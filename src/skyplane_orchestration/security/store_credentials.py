"""Resolves a location's `credential_ref` to credentials.

A reference is never a secret: `profile:NAME` (AWS profile), `env:PREFIX` (variables
PREFIX_ACCESS_KEY_ID, ...; for Google PREFIX_SERVICE_ACCOUNT_FILE, ..., for
Azure PREFIX_ACCOUNT_KEY, ...), or a scheme of an orchestrator's hook, such as
`airflow:CONN_ID`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores import ambient_credentials, sendable_credentials
from skyplane_orchestration.errors import CloudAccessDenied, ConfigurationInvalid, StoreError
from skyplane_orchestration.model.location import Location

#: (text after the colon, location) -> credentials.
Resolver = Callable[[str, Location], Credentials | None]

_S3_NAMES: Final = ("access_key_id", "secret_access_key", "session_token")
#: Option of a location: OAuth scopes of the tokens of Google, separated by commas, or of Azure. By
#: default they are those of stores.
SCOPES_OPTION: Final = "scopes"
#: Option of a location: a role of its credentials need not be assumed, and stands in them as
#: `sendable_credentials` takes it. Its first session can then be limited.
UNASSUMED_OPTION: Final = "unassumed"
#: Cloud -> URL that stands for its API: credentials of a store are those of its cloud.
API_URLS: Final = {"aws": "s3://any/", "azure": "az://any/any/", "gcp": "gs://any/"}
#: One suffices. The first three exclude each other; the last also works with the platform's own.
GCS_NAMES: Final = ("access_token", "service_account_file", "service_account_json", "impersonate")
AZURE_PRINCIPAL: Final = ("tenant_id", "client_id", "client_secret")
#: Of each line, all variables together suffice.
_AZURE_NAMES: Final = (
    ("connection_string",),
    ("account_key",),
    ("sas_token",),
    AZURE_PRINCIPAL,
)


def purpose_of(location: Location) -> str:
    """What the credentials of a location are for, as messages name it."""
    clouds = {url: cloud for cloud, url in API_URLS.items()}
    cloud = clouds.get(location.url)
    return f"the cloud {cloud}" if cloud else repr(location.url)


def _from_environment(prefix: str, location: Location) -> Credentials | None:
    scopes = location.options.get(SCOPES_OPTION, "")
    if location.kind == "azure":
        return _azure_from_environment(prefix, scopes)
    if location.kind == "gcs":
        found = variables(prefix, GCS_NAMES)
        if not found:
            known = ", ".join(f"{prefix}_{name.upper()}" for name in GCS_NAMES)
            raise ConfigurationInvalid(
                f"credentials env:{prefix} need one of the variables {known}"
            )
        return sendable_credentials("gcs", {**found, "scopes": scopes})
    found = variables(prefix, _S3_NAMES)
    for name in _S3_NAMES[:2]:
        if name not in found:
            raise ConfigurationInvalid(
                f"credentials env:{prefix} need the variable {prefix}_{name.upper()}, "
                "which is not set"
            )
    return Credentials(found)


def _azure_from_environment(prefix: str, scopes: str) -> Credentials | None:
    # Keys and signatures are for storage only.
    usable = _AZURE_NAMES[-1:] if scopes else _AZURE_NAMES
    for names in usable:
        found = variables(prefix, names)
        if len(found) == len(names):
            return sendable_credentials("azure", {**found, "scopes": scopes})
    choices = "; or ".join(
        " and ".join(f"{prefix}_{name.upper()}" for name in names) for names in usable
    )
    raise ConfigurationInvalid(f"credentials env:{prefix} need the variables {choices}")


def variables(prefix: str, names: Iterable[str]) -> dict[str, str]:
    """Those of `env:PREFIX` that are set, by our names."""
    values = {name: os.environ.get(f"{prefix}_{name.upper()}") for name in names}
    return {name: value for name, value in values.items() if value}


class CredentialSources:
    """Resolves references.

    Args:
        more: scheme -> resolver, in addition to `profile` and `env`.
        is_ambient_allowed: an empty reference means this process's own credentials.
    """

    def __init__(
        self, more: Mapping[str, Resolver] | None = None, *, is_ambient_allowed: bool = True
    ) -> None:
        self._resolvers: Mapping[str, Resolver] = {
            "profile": lambda name, location: ambient_credentials(location.kind, name),
            "env": _from_environment,
            **(more or {}),
        }
        self._is_ambient_allowed = is_ambient_allowed

    def resolve(self, location: Location) -> Credentials | None:
        """The credentials for a location; None if there are none. Raises ConfigurationInvalid."""
        reference = location.credential_ref
        if not reference:
            is_anonymous = location.options.get("anonymous") == "true"
            if is_anonymous or not self._is_ambient_allowed:
                return None
            return ambient_credentials(
                location.kind,
                bucket=location.bucket,
                endpoint_url=location.endpoint_url,
                scopes=location.options.get(SCOPES_OPTION, ""),
                is_unassumed=UNASSUMED_OPTION in location.options,
            )
        scheme, colon, rest = reference.partition(":")
        resolver = self._resolvers.get(scheme)
        if not colon or not rest or resolver is None:
            known = ", ".join(f"{name}:..." for name in sorted(self._resolvers))
            raise ConfigurationInvalid(
                f"credentials {reference!r} have an unknown form; known forms: {known}"
            )
        return resolver(rest, location)

    def of_cloud(self, cloud: str, reference: str, scopes: str = "") -> Credentials | None:
        """The credentials of a reference for the API of a cloud; None if there are none.

        They are those of the cloud's stores, but for the scopes of tokens, and depend on no bucket.

        Raises CloudAccessDenied: they cannot be used.
        """
        options = {SCOPES_OPTION: scopes} if scopes else {}
        location = Location(API_URLS[cloud], credential_ref=reference, options=options)
        try:
            return self.resolve(location)
        except StoreError as error:
            raise CloudAccessDenied(
                f"the credentials for {cloud} cannot be used: {error}", of_credentials=True
            ) from error
