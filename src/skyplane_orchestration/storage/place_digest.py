"""What a place holds now, as a digest: an observer sees by it whether anything has changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from skyplane_gateway.selection.candidates import list_candidates
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.selection.source_digest import SourceDigest
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.empty_source import CountingLister
from skyplane_orchestration.storage.open import open_location
from skyplane_orchestration.storage.pattern_notes import unmatched_warnings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """The selected objects of a place.

    Args:
        digest: the same as `TransferResult.source_digest` of a transfer that selects and finds
            the same objects.
    """

    digest: str
    objects: int
    size_bytes: int


def source_version(
    location: Location,
    credentials: CredentialSources,
    *,
    recursive: bool,
    include: Sequence[str],
    exclude: Sequence[str],
) -> SourceVersion:
    """List a place to its end, in constant memory; see `Client.source_version`."""
    rule = SelectionRule(
        source_prefix=location.key,
        destination_prefix="",
        recursive=recursive,
        include=tuple(include),
        exclude=tuple(exclude),
    )
    digest, objects, size = SourceDigest(), 0, 0
    with open_location(location, credentials) as store:
        use = PatternUse(rule)
        lister = CountingLister(partial(store.list, wants=use.wants), "source")
        for one in list_candidates(rule, use.watch(lister, location.key)):
            digest.add(one.source)
            objects += 1
            size += one.source.size_bytes
    for warning in unmatched_warnings(use.unmatched(), f"under {location.url!r}", rule):
        log.warning("%s", warning)
    return SourceVersion(digest.text, objects, size)
