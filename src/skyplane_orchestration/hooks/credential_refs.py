"""How a location names an Airflow connection."""

from __future__ import annotations

from typing import Final

#: Scheme of the `credential_ref`s that name an Airflow connection.
CREDENTIAL_SCHEME: Final = "airflow"


def credential_ref(connection_id: str | None) -> str:
    """The `credential_ref` of an Airflow connection; empty for the worker's own credentials."""
    return f"{CREDENTIAL_SCHEME}:{connection_id}" if connection_id else ""
