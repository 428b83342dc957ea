"""Connection strings of storage accounts: `AccountName=...;AccountKey=...;BlobEndpoint=...`."""

from __future__ import annotations


def connection_string_fields(text: str) -> dict[str, str]:
    """The fields of a connection string, by lower-case name."""
    pairs = (pair.partition("=") for pair in text.split(";"))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if value}
