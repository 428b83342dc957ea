"""Connection strings of storage accounts, `AccountName=...;AccountKey=...`, and their URLs."""

from __future__ import annotations

from urllib.parse import urlsplit


def connection_string_fields(text: str) -> dict[str, str]:
    """The fields of a connection string, by lower-case name."""
    pairs = (pair.partition("=") for pair in text.split(";"))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if value}


def url_of_account(account: str, endpoint_url: str | None) -> str:
    """The URL of the account's blobs, without a slash at its end.

    The account is the first label of the endpoint's host, as in Azure, or the path, as in Azurite.
    The endpoint of Data Lake Storage stands for that of the same account's blobs.
    """
    if endpoint_url is None:
        return f"https://{account}.blob.core.windows.net"
    url = endpoint_url.rstrip("/").replace(".dfs.core.", ".blob.core.")
    parts = urlsplit(url)
    is_named = (parts.hostname or "").split(".")[0] == account or parts.path == f"/{account}"
    return url if is_named else f"{url}/{account}"
