"""What the readers of the clouds' connections share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from skyplane_orchestration.errors import ConfigurationInvalid


class StoreConnection(Protocol):
    """The fields of an Airflow connection that are read."""

    @property
    def conn_type(self) -> str | None: ...

    @property
    def host(self) -> str | None: ...

    @property
    def login(self) -> str | None: ...

    @property
    def password(self) -> str | None: ...

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


def extra_fields(connection: StoreConnection, prefix: str = "") -> dict[str, Any]:
    """The fields of `extra` that have a value.

    Args:
        prefix: older releases of Airflow's form put it before the names; a name without counts
            first.
    """
    given = {
        name: value for name, value in connection.extra_dejson.items() if value not in ("", None)
    }
    if not prefix:
        return given
    old = {name.removeprefix(prefix): value for name, value in given.items()}
    return {**old, **{name: given[name] for name in old if name in given}}


def refuse_fields(connection_id: str, fields: Mapping[str, Any], advice: Mapping[str, str]) -> None:
    """Raise ConfigurationInvalid for the first of the fields that is not supported.

    Args:
        advice: names of such fields -> what to do instead.
    """
    for name, text in advice.items():
        if fields.get(name):
            raise ConfigurationInvalid(
                f"connection {connection_id!r} has {name}, which is not supported; {text}"
            )
