"""What the readers of the clouds' connections share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from skyplane_gateway.common.schema import checked
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.text_values import from_text


class ConnectionLike(Protocol):
    """The fields of an Airflow connection that are read."""

    @property
    def conn_type(self) -> str | None: ...

    @property
    def host(self) -> str | None: ...

    @property
    def port(self) -> int | None: ...

    @property
    def login(self) -> str | None: ...

    @property
    def password(self) -> str | None: ...

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


def extra_fields(
    connection: ConnectionLike, connection_id: str, types: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """The fields of `extra` that have a value.

    Args:
        types: name of a field -> its type; others are not checked.
        prefix: older releases of Airflow's form put it before the names; a name without counts
            first.

    Raises ConfigurationInvalid for a value of another type.
    """
    given = {
        name: value for name, value in connection.extra_dejson.items() if value not in ("", None)
    }
    if prefix:
        old = {name.removeprefix(prefix): value for name, value in given.items()}
        given = {**old, **{name: given[name] for name in old if name in given}}
    what = f"connection {connection_id!r}"
    return {
        name: typed_field(types[name], value, name, what) if name in types else value
        for name, value in given.items()
    }


def typed_field(hint: Any, given: object, name: str, what: str) -> Any:
    """A field of a connection, or its text in the form, as its type wants it.

    Raises ConfigurationInvalid without the value, which may be a secret.
    """
    try:
        return checked(hint, from_text(hint, given, is_whole=True), name, is_secret=True)
    except ConfigurationInvalid as error:
        error.put_before(what)
        raise


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
