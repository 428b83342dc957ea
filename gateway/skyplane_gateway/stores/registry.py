"""The kinds of stores: opens a store with credentials, retries and limits.

Imports the SDK of the kind it is asked for, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from skyplane_gateway.errors import ConfigurationInvalid, MissingExtra
from skyplane_gateway.objects import Credentials, StoreSpec
from skyplane_gateway.retry import RetryPolicy
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.wrappers.credential_renewal import CredentialRenewal
from skyplane_gateway.stores.wrappers.rate_limiter import limiter_of
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

_MODULES = {
    "file": "skyplane_gateway.stores.local.store",
    "gcs": "skyplane_gateway.stores.gcs.store",
    "memory": "skyplane_gateway.stores.memory",
    "s3": "skyplane_gateway.stores.s3.store",
}

#: Kind -> the extra that installs its SDK.
_EXTRAS = {"gcs": "gcs", "s3": "aws"}

#: Kinds that plans know and gateways do not, and the scheme of their URLs.
_PLANNED_ONLY = {"azure": "az://"}

#: Kinds whose stores know credentials and regions.
_CLOUD_KINDS = ("gcs", "s3")


def require_kind(kind: str) -> None:
    """Raise ConfigurationInvalid unless this release can open stores of this kind."""
    if kind in _PLANNED_ONLY:
        raise ConfigurationInvalid(
            f"{_PLANNED_ONLY[kind]} is not supported yet; this release moves s3://, gs:// and "
            "file: (it makes plans for other stores where their region and the volume are given)"
        )
    if kind not in _MODULES:
        raise ConfigurationInvalid(
            f"there is no store of kind {kind!r}; choose one of {', '.join(_MODULES)}"
        )


def ambient_credentials(
    kind: str, profile: str | None = None, *, endpoint_url: str = ""
) -> Credentials | None:
    """The credentials of the calling process, frozen, to be sent to gateways.

    None for stores that need none, and where the process has none.

    Args:
        profile: of the AWS CLI.
        endpoint_url: a token of Google is for Google's own endpoints only.

    Raises:
        ConfigurationInvalid: there is no such profile, or this kind has none.
        MissingExtra: the SDK is not installed.
    """
    if kind not in _CLOUD_KINDS:
        return None
    module = _module(kind)
    found: Credentials | None = (
        module.ambient_credentials(profile, endpoint_url)
        if kind == "gcs"
        else module.ambient_credentials(profile)
    )
    return found


def sendable_credentials(kind: str, values: Mapping[str, str]) -> Credentials | None:
    """The credentials that gateways get for those that a user named.

    Google: a key or an identity to act as becomes a token that expires. None where the process
    itself has no identity.

    Raises:
        ConfigurationInvalid: they cannot be used.
        StoreError: the service that gives tokens refuses, or does not answer.
        MissingExtra: the SDK is not installed.
    """
    if kind != "gcs":
        return Credentials(values)
    found: Credentials | None = _module(kind).sendable_credentials(values)
    return found


def bucket_region(spec: StoreSpec, credentials: Credentials | None = None) -> str | None:
    """The region that the store names for the bucket; None where it names none.

    Raises:
        ConfigurationInvalid: there is no such kind of store.
        StoreError: the bucket is missing, access is denied, or the store does not answer.
    """
    require_kind(spec.kind)
    if spec.kind not in _CLOUD_KINDS:
        return None
    region: str | None = _module(spec.kind).bucket_region(spec, credentials)
    return region


def open_store(
    spec: StoreSpec,
    credentials: Credentials | None = None,
    policy: RetryPolicy | None = None,
) -> RetryingStore:
    """Open the store of `spec`. Makes no request: `ObjectStore.check` does.

    Args:
        credentials: None for the platform's own identity.
        policy: retries of each call; the store's option `attempts` has priority.

    Raises:
        ConfigurationInvalid: there is no such kind of store, or an option is not valid.
        MissingExtra: the store's SDK is not installed.
    """
    renewal = CredentialRenewal(lambda fresh: open_without_retries(spec, fresh), credentials)
    policy = policy or RetryPolicy()
    attempts = spec.option("attempts")
    if attempts:
        policy = replace(policy, attempts=int(attempts))
    return RetryingStore(renewal.store, limiter_of(spec), renewal=renewal, policy=policy)


def open_without_retries(spec: StoreSpec, credentials: Credentials | None = None) -> ObjectStore:
    """A store that sends each request once; `open_store` wraps it."""
    store: ObjectStore = _module(spec.kind).open_from_spec(spec, credentials)
    return store


def _module(kind: str) -> Any:
    require_kind(kind)
    try:
        return import_module(_MODULES[kind])
    except ModuleNotFoundError as error:
        if kind not in _EXTRAS:
            raise
        raise MissingExtra.of(f"the store {kind!r}", _EXTRAS[kind]) from error
