"""Opens a store with credentials, retries and limits."""

from __future__ import annotations

from dataclasses import replace

from skyplane_gateway.objects import Credentials, StoreSpec
from skyplane_gateway.retry import RetryPolicy
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.wrappers.credential_renewal import CredentialRenewal
from skyplane_gateway.stores.wrappers.rate_limiter import limiter_of
from skyplane_gateway.stores.wrappers.retrying import RetryingStore


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
