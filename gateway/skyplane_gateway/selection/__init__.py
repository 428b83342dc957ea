"""Which objects are copied, to which keys, in which order, under which precondition.

Uses no store: the lead and dry runs apply it to their listings.
"""

from __future__ import annotations

from skyplane_gateway.selection.key_mapping import folder_of, map_key
from skyplane_gateway.selection.metadata_check import metadata_not_carried, require_carried
from skyplane_gateway.selection.overlap import refuse_overlap
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.publish_order import PUBLISHED_LAST, is_published_last
from skyplane_gateway.selection.rules import (
    CONFLICT_RULES,
    KEEPING_RULES,
    Action,
    Candidate,
    EscapeName,
    KeyCheck,
    Lister,
    OwnTime,
    Selection,
    SelectionRule,
    asks_own_time,
    candidates,
    decide,
    destination_listing_prefix,
    is_reserved,
    select,
)
from skyplane_gateway.selection.source_digest import SourceDigest

__all__ = [
    "CONFLICT_RULES",
    "KEEPING_RULES",
    "PUBLISHED_LAST",
    "Action",
    "Candidate",
    "EscapeName",
    "KeyCheck",
    "Lister",
    "PatternUse",
    "Selection",
    "SelectionRule",
    "SourceDigest",
    "candidates",
    "decide",
    "is_published_last",
    "is_reserved",
    "destination_listing_prefix",
    "folder_of",
    "map_key",
    "OwnTime",
    "asks_own_time",
    "metadata_not_carried",
    "refuse_overlap",
    "require_carried",
    "select",
]
