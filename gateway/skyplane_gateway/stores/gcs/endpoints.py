"""Which endpoints of Google Cloud Storage are Google's; needs no SDK."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_google(endpoint_url: str | None) -> bool:
    """Whether an endpoint is Google's own, also a private one; not an emulator."""
    if not endpoint_url:
        return True
    parts = urlsplit(endpoint_url)
    return parts.scheme == "https" and (parts.hostname or "").endswith(".googleapis.com")
