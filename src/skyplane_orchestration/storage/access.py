"""How tools of others get to a place: its endpoint, and credentials as they were given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from skyplane_gateway.stores import Credentials, is_google, url_of_account
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import (
    AZURE_PRINCIPAL,
    GCS_NAMES,
    CredentialSources,
    variables,
)
from skyplane_orchestration.storage.open import spec_of

#: Columns of `_NAMES`.
RCLONE, OWN_TOOL, FSSPEC = range(3)
#: Our name of a credential -> that of rclone, of the cloud's own tool, of fsspec; empty for none.
_NAMES: Final[Mapping[str, tuple[str, str, str]]] = {
    "profile": ("profile", "AWS_PROFILE", "profile"),
    "access_key_id": ("access_key_id", "AWS_ACCESS_KEY_ID", "key"),
    "secret_access_key": ("secret_access_key", "AWS_SECRET_ACCESS_KEY", "secret"),
    "session_token": ("session_token", "AWS_SESSION_TOKEN", "token"),
    "service_account_file": ("service_account_file", "GOOGLE_APPLICATION_CREDENTIALS", "token"),
    "service_account_json": ("service_account_credentials", "", "token"),
    "access_token": ("access_token", "", "token"),
    "account_key": ("key", "AZURE_STORAGE_ACCESS_KEY", "account_key"),
    "sas_token": ("sas_url", "AZURE_STORAGE_SAS_TOKEN", "sas_token"),
    "tenant_id": ("tenant", "AZURE_STORAGE_SPN_TENANT_ID", "tenant_id"),
    "client_id": ("client_id", "AZURE_STORAGE_SPN_CLIENT_ID", "client_id"),
    "client_secret": ("client_secret", "AZURE_STORAGE_SPN_CLIENT_SECRET", "client_secret"),
}


@dataclass(frozen=True, slots=True)
class Access:
    """What a tool of others needs for a place.

    Attributes:
        bucket: a container on Azure.
        endpoint: empty for the cloud's own; on Azure the URL of the account.
        region: as the cloud writes it; may be empty.
        given: credentials by our names, and `profile`; empty for what the tool finds itself.
    """

    place: Location
    account: str
    bucket: str
    endpoint: str
    region: str
    given: Mapping[str, str] = field(repr=False)
    is_anonymous: bool

    @property
    def path(self) -> str:
        return f"{self.bucket}/{self.place.key}".rstrip("/")

    def option(self, name: str) -> str:
        return self.place.options.get(name, "")

    def given_to(self, column: int) -> dict[str, str]:
        """The credentials by names of a tool. Raises ConfigurationInvalid if it takes others."""
        for name in self.given:
            if not _NAMES.get(name, ("", "", ""))[column]:
                raise ConfigurationInvalid(f"{name} cannot be used for {self.place.url!r} here")
        return {_NAMES[name][column]: value for name, value in self.given.items()}


def access_to(place: Location, credentials: CredentialSources) -> Access:
    """Raises ConfigurationInvalid or StoreError for credentials that cannot be used.

    Keys and profiles are not exchanged for tokens: a tool that runs for days renews its own.
    """
    spec = spec_of(place)
    account, bucket, endpoint = "", place.bucket, spec.endpoint_url or ""
    if place.kind == "azure":
        account, _, bucket = place.bucket.partition("/")
        endpoint = url_of_account(account, spec.endpoint_url)
    is_emulator = place.kind == "gcs" and not place.credential_ref and not is_google(endpoint)
    is_anonymous = is_emulator or spec.option("anonymous") == "true"
    given = {} if is_anonymous else _given(place, credentials)
    return Access(place, account, bucket, endpoint, spec.region or "", given, is_anonymous)


def _given(place: Location, credentials: CredentialSources) -> Mapping[str, str]:
    scheme, _, name = place.credential_ref.partition(":")
    if scheme == "profile" and place.kind == "s3":
        return {"profile": name}
    if not scheme and place.kind != "azure":
        return {}
    if scheme == "env" and place.kind == "gcs" and (keys := variables(name, GCS_NAMES)):
        return keys
    found = credentials.resolve(place) or Credentials({})
    if scheme in ("", "env") and "bearer_token" in found:
        return variables(name, AZURE_PRINCIPAL) if scheme else {}
    return {one: found[one].strip().lstrip("?") for one in found if one != "expires_at"}
