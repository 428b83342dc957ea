"""What an object has at its source and its copy does not."""

from __future__ import annotations

from collections.abc import Iterable

from skyplane_gateway.errors import MetadataNotCarried


def not_carried(key: str, names: Iterable[str]) -> MetadataNotCarried:
    """Why an object is not copied whose copy would lack what `names` says."""
    return MetadataNotCarried(
        f"{key!r} has metadata that this copy cannot keep: {', '.join(sorted(names))}; "
        "copy it with another tool, or leave out strict_metadata (--strict-metadata)"
    )


def require_carried(key: str, names: Iterable[str]) -> None:
    """Raises MetadataNotCarried unless `names` is empty."""
    found = tuple(names)
    if found:
        raise not_carried(key, found)
