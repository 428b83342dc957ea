"""Metadata that a copy of an object cannot keep."""

from __future__ import annotations

from collections.abc import Iterable

from skyplane_gateway.common.errors import MetadataNotCarried


def metadata_not_carried(key: str, names: Iterable[str]) -> MetadataNotCarried:
    """The error for an object whose copy would lack the named metadata."""
    return MetadataNotCarried.about(
        "{key!r} has metadata that this copy cannot keep: {names}; copy it with another tool, "
        "or leave out {strict_metadata}",
        key=key,
        names=", ".join(sorted(names)),
    )


def require_carried(key: str, names: Iterable[str]) -> None:
    """Raises MetadataNotCarried unless `names` is empty."""
    found = tuple(names)
    if found:
        raise metadata_not_carried(key, found)
