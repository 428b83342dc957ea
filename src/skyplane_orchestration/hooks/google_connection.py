"""Connections of type `google_cloud_platform`, with the fields of the google provider (22.8.0)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from skyplane_gateway.stores import Credentials, sendable_credentials, session_credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.hooks.connection_fields import (
    ConnectionLike,
    extra_fields,
    refuse_fields,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import SCOPES_OPTION

#: Older releases of Airflow's form put this before the names of the fields.
_PREFIX: Final = "extra__google_cloud_platform__"
_TYPES: Final = {
    **dict.fromkeys(("key_path", "scope", "key_secret_name", "idp_issuer_url"), str),
    "is_anonymous": bool,
    "keyfile_dict": str | Mapping[str, Any],
    "impersonation_chain": Sequence[str],
}
#: Fields with credentials that the provider's hook reads -> what to do without the provider.
_OF_HOOK: Final = {
    "key_secret_name": "give keyfile_dict or key_path, or install apache-airflow-providers-google",
    "credential_config_file": "set GOOGLE_APPLICATION_CREDENTIALS for the workers, or install"
    " apache-airflow-providers-google",
    "idp_issuer_url": "give keyfile_dict or key_path, or install apache-airflow-providers-google",
}


def google_credentials(
    connection: ConnectionLike, connection_id: str, location: Location
) -> Credentials | None:
    """A service account's key (`keyfile_dict`, `key_path`), else the worker's own identity.

    `impersonation_chain` and `scope` apply to either; scopes that the location names count first.
    A secret, a configuration file or an identity provider is read by the provider's hook, where
    it is installed. Every call gets a new token.
    """
    extra = extra_fields(connection, connection_id, _TYPES, _PREFIX)
    if extra.get("is_anonymous"):
        return None
    if any(extra.get(name) for name in _OF_HOOK):
        try:
            from airflow.providers.google.common.hooks.base_google import GoogleBaseHook
        except ModuleNotFoundError:
            pass
        else:
            hook = GoogleBaseHook(gcp_conn_id=connection_id)
            return session_credentials("gcs", hook.get_credentials)
        refuse_fields(connection_id, extra, _OF_HOOK)
    key = extra.get("keyfile_dict")
    values = {
        "service_account_file": extra.get("key_path", ""),
        "service_account_json": key if isinstance(key, str) else json.dumps(key) if key else "",
        "impersonate": ",".join(extra.get("impersonation_chain", ())),
        "scopes": location.options.get(SCOPES_OPTION) or extra.get("scope", ""),
    }
    if values["service_account_file"] and values["service_account_json"]:
        raise ConfigurationInvalid(
            f"connection {connection_id!r} has both keyfile_dict and key_path; give one"
        )
    return sendable_credentials("gcs", values)


def google_place(connection: ConnectionLike, connection_id: str, location: Location) -> Location:
    """The location; with `is_anonymous` its requests carry no credentials."""
    if not extra_fields(connection, connection_id, _TYPES, _PREFIX).get("is_anonymous"):
        return location
    return replace(location, options={"anonymous": "true", **location.options})
