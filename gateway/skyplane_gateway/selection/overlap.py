"""Refuses copies whose destination overlaps their source."""

from __future__ import annotations

import os

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.selection.key_mapping import folder_of, map_key


def refuse_overlap(
    source: StoreSpec,
    source_prefix: str,
    destination: StoreSpec,
    destination_prefix: str,
    *,
    recursive: bool,
) -> None:
    """Raise ConfigurationInvalid for a copy onto itself or into its own source.

    In its own source the listing would find new copies. A copy from a folder into one above it
    is allowed: listings are ascending and reads name a version, so a key that is read and
    written fails and damages nothing.

    File stores are compared by their real paths on this machine, with links followed.
    """
    if not _same_store(source, destination):
        return
    if not recursive:
        target = map_key(source_prefix, source_prefix, destination_prefix, recursive=False)
        if _place(source, source_prefix) == _place(destination, target):
            raise ConfigurationInvalid(
                f"source and destination are the same object, {source.url(source_prefix)}; "
                "choose another destination"
            )
        return
    above = _folder_place(source, source_prefix)
    below = _folder_place(destination, destination_prefix)
    here, there = source.url(source_prefix), destination.url(destination_prefix)
    if below == above:
        raise ConfigurationInvalid(
            f"source {here} and destination {there} are the same place; choose another destination"
        )
    if below.startswith(above):
        raise ConfigurationInvalid(
            f"the destination {there} lies in the source {here}, so the copy would copy itself; "
            "choose a destination beside it"
        )


def lies_in(one: StoreSpec, prefix: str, other: StoreSpec, other_prefix: str) -> bool:
    """Whether a folder lies in another one, or is the same."""
    inner, outer = _folder_place(one, prefix), _folder_place(other, other_prefix)
    return _same_store(one, other) and inner.startswith(outer)


def _same_store(one: StoreSpec, other: StoreSpec) -> bool:
    if one.kind == "file":
        # One root may contain the other; the real paths decide.
        return other.kind == "file"
    return (one.kind, one.bucket, _endpoint(one)) == (other.kind, other.bucket, _endpoint(other))


def _endpoint(spec: StoreSpec) -> str:
    return (spec.endpoint_url or "").rstrip("/").lower()


def _place(spec: StoreSpec, key: str) -> str:
    return os.path.realpath(f"{spec.bucket}/{key}") if spec.kind == "file" else key


def _folder_place(spec: StoreSpec, prefix: str) -> str:
    place = _place(spec, folder_of(prefix))
    return place if place == "" or place.endswith("/") else place + "/"
