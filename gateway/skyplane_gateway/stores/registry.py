"""The kinds of stores: opens a store with credentials, retries and limits.

Imports the SDK of the kind it is asked for, and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from skyplane_gateway.common.errors import ConfigurationInvalid, MissingExtra
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.reach import Reach
from skyplane_gateway.stores.wrappers.credential_renewal import CredentialRenewal
from skyplane_gateway.stores.wrappers.rate_limiter import UNMETERED, RateLimits, limiter_of
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

_MODULES = {
    "azure": "skyplane_gateway.stores.azure.store",
    "file": "skyplane_gateway.stores.local.store",
    "gcs": "skyplane_gateway.stores.gcs.store",
    "s3": "skyplane_gateway.stores.s3.store",
}

#: Kind -> the extra that installs its SDK.
_EXTRAS = {"azure": "azure", "gcs": "gcs", "s3": "aws"}

#: Cloud -> the kind of its stores.
_KINDS: Final = {"aws": "s3", "azure": "azure", "gcp": "gcs"}

#: Kinds whose stores name the region of a bucket.
_REGIONAL: Final = ("gcs", "s3")


def require_kind(kind: str) -> None:
    """Raise ConfigurationInvalid unless this release can open stores of this kind."""
    if kind not in _MODULES:
        raise ConfigurationInvalid(
            f"there is no store of kind {kind!r}; choose one of {', '.join(_MODULES)}"
        )


def ambient_credentials(
    kind: str,
    profile: str | None = None,
    *,
    bucket: str = "",
    endpoint_url: str = "",
    scopes: str = "",
    is_unassumed: bool = False,
) -> Credentials | None:
    """The credentials of the calling process, frozen, to be sent to gateways.

    None for stores that need none, and where the process has none.

    Args:
        profile: of the AWS CLI.
        bucket: as in `StoreSpec`; the credentials of Azure belong to an account.
        endpoint_url: tokens of Google and Azure are for their own endpoints only.
        scopes: of tokens of Google, separated by commas; by default that of stores.
        is_unassumed: a role of AWS that a web identity may assume stays so, where it can; the
            result is then for `limited_credentials`.

    Raises:
        ConfigurationInvalid: there is no such profile, or this kind has none.
        MissingExtra: the SDK is not installed.
    """
    if kind not in _EXTRAS:
        return None
    at: dict[str, Any] = {
        "azure": {"bucket": bucket, "endpoint_url": endpoint_url},
        "gcs": {"endpoint_url": endpoint_url, "scopes": scopes},
        "s3": {"is_unassumed": is_unassumed},
    }
    module = _module(kind, "credentials")
    found: Credentials | None = module.ambient_credentials(profile, **at[kind])
    return found


def sendable_credentials(kind: str, values: Mapping[str, str]) -> Credentials | None:
    """The credentials that gateways get for those that a user named.

    Google and Azure: a key of an identity, or an identity to act as, becomes a token that
    expires. AWS: a role becomes keys that expire. None where the process itself has no identity.

    Raises:
        ConfigurationInvalid: they cannot be used.
        StoreError: the service that gives tokens refuses, or does not answer.
        MissingExtra: the SDK is not installed.
    """
    if kind not in _EXTRAS:
        return Credentials(values)
    found: Credentials | None = _module(kind, "credentials").sendable_credentials(values)
    return found


def session_credentials(kind: str, opened: Callable[[], Any]) -> Credentials | None:
    """The credentials that gateways get for those that another library holds; None for none.

    Args:
        kind: `s3` or `gcs`.
        opened: returns a session of boto3, or credentials of google-auth; its errors are mapped.

    Raises:
        StoreError: the service that gives them refuses, or does not answer.
        MissingExtra: the SDK is not installed.
    """
    found: Credentials | None = _module(kind, "credentials").session_credentials(opened)
    return found


def limited_credentials(found: Credentials, reaches: Sequence[Reach]) -> Credentials:
    """Credentials for a gateway that reach these places only, which are of one kind of store.

    Those for the endpoint of another service than AWS and Google stay as they are, and so does a
    signature of Azure that was given.

    Raises:
        CredentialsTooWide: there are none; the message has what to allow.
        StoreError: the service that gives them does not accept these, or does not answer.
        MissingExtra: the SDK is not installed.
    """
    module = _module(reaches[0].store.kind, "limited_credentials")
    limited: Credentials = module.limited_credentials(found, reaches)
    return limited


def bucket_region(spec: StoreSpec, credentials: Credentials | None = None) -> str | None:
    """The region that the store names for the bucket; None where it names none.

    Raises:
        ConfigurationInvalid: there is no such kind of store.
        StoreError: the bucket is missing, access is denied, or the store does not answer.
    """
    require_kind(spec.kind)
    if spec.kind not in _REGIONAL:
        return None
    region: str | None = _module(spec.kind, "client").bucket_region(spec, credentials)
    return region


def load_stores_of(cloud: str) -> None:
    """Import the SDK of a cloud's stores, which takes a while; nothing where it is missing."""
    if cloud in _KINDS:
        with suppress(MissingExtra):
            _module(_KINDS[cloud])


def open_store(
    spec: StoreSpec, credentials: Credentials | None = None, policy: RetryPolicy | None = None
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
    # Only services throttle, and each has an SDK.
    limiter = limiter_of(spec, RateLimits() if spec.kind in _EXTRAS else UNMETERED)
    return RetryingStore(renewal.store, limiter, renewal=renewal, policy=policy)


def open_without_retries(spec: StoreSpec, credentials: Credentials | None = None) -> ObjectStore:
    """A store that sends each request once; `open_store` wraps it."""
    store: ObjectStore = _module(spec.kind).open_from_spec(spec, credentials)
    return store


def _module(kind: str, name: str = "") -> Any:
    """The module of a kind's store, or another one of its folder."""
    require_kind(kind)
    try:
        return import_module(f"skyplane_gateway.stores.{kind}.{name}" if name else _MODULES[kind])
    except ModuleNotFoundError as error:
        if kind not in _EXTRAS:
            raise
        raise MissingExtra.of(f"the store {kind!r}", _EXTRAS[kind]) from error
