"""Resolves a location's `credential_ref` to credentials.

A reference is never a secret: `profile:NAME` (AWS profile), `env:PREFIX` (variables
PREFIX_ACCESS_KEY_ID, ...), or a scheme of an orchestrator's hook, such as `airflow:CONN_ID`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from skyplane_gateway.objects import Credentials
from skyplane_gateway.stores import ambient_credentials
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import Location

#: (text after the colon, location) -> credentials.
Resolver = Callable[[str, Location], Credentials | None]

_ENVIRONMENT_NAMES: Final = ("access_key_id", "secret_access_key", "session_token")


def _from_profile(name: str, location: Location) -> Credentials | None:
    return ambient_credentials(location.kind, name)


def _from_environment(prefix: str, location: Location) -> Credentials | None:
    found = {
        name: value
        for name in _ENVIRONMENT_NAMES
        if (value := os.environ.get(f"{prefix}_{name.upper()}"))
    }
    for name in _ENVIRONMENT_NAMES[:2]:
        if name not in found:
            raise ConfigurationInvalid(
                f"credentials env:{prefix} need the variable {prefix}_{name.upper()}, "
                "which is not set"
            )
    return Credentials(found)


class CredentialSources:
    """Resolves references.

    Args:
        more: scheme -> resolver, in addition to `profile` and `env`.
        is_ambient_allowed: an empty reference means this process's own credentials.
    """

    def __init__(
        self, more: Mapping[str, Resolver] | None = None, *, is_ambient_allowed: bool = True
    ) -> None:
        self._resolvers = {"profile": _from_profile, "env": _from_environment, **(more or {})}
        self._is_ambient_allowed = is_ambient_allowed

    def resolve(self, location: Location) -> Credentials | None:
        """The credentials for a location; None if there are none. Raises ConfigurationInvalid."""
        reference = location.credential_ref
        if not reference:
            return ambient_credentials(location.kind) if self._is_ambient_allowed else None
        scheme, colon, rest = reference.partition(":")
        resolver = self._resolvers.get(scheme)
        if not colon or not rest or resolver is None:
            known = ", ".join(f"{name}:..." for name in sorted(self._resolvers))
            raise ConfigurationInvalid(
                f"credentials {reference!r} have an unknown form; known forms: {known}"
            )
        return resolver(rest, location)
