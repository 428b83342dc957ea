"""Which objects are copied, to which keys, in which order, under which precondition.

Uses no store: the lead and dry runs apply it to their listings.
"""

from __future__ import annotations

from skyplane_gateway.selection.candidates import (
    Candidate,
    EscapeName,
    Lister,
    Pair,
    destination_listing_prefix,
    glob_advice,
    list_candidates,
)
from skyplane_gateway.selection.difference import MARGIN_S, ComparisonAnswer, Ends
from skyplane_gateway.selection.key_mapping import folder_of, map_key
from skyplane_gateway.selection.metadata_check import metadata_not_carried, require_carried
from skyplane_gateway.selection.overlap import refuse_overlap
from skyplane_gateway.selection.pattern_use import PatternUse
from skyplane_gateway.selection.publish_order import is_published_last
from skyplane_gateway.selection.questions import (
    Ask,
    ComparisonQuestion,
    answers_in_order,
    of_kind,
    open_questions,
    with_answers,
)
from skyplane_gateway.selection.selection_rule import (
    CONFLICT_RULES,
    KEEPING_RULES,
    SelectionRule,
    is_reserved,
)
from skyplane_gateway.selection.selector import KeyCheck, Selection, decide, select
from skyplane_gateway.selection.source_digest import SourceDigest

__all__ = [
    "CONFLICT_RULES",
    "KEEPING_RULES",
    "MARGIN_S",
    "Ask",
    "Candidate",
    "ComparisonAnswer",
    "ComparisonQuestion",
    "Ends",
    "EscapeName",
    "KeyCheck",
    "Lister",
    "Pair",
    "PatternUse",
    "Selection",
    "SelectionRule",
    "SourceDigest",
    "answers_in_order",
    "decide",
    "destination_listing_prefix",
    "folder_of",
    "glob_advice",
    "is_published_last",
    "is_reserved",
    "list_candidates",
    "map_key",
    "metadata_not_carried",
    "of_kind",
    "open_questions",
    "refuse_overlap",
    "require_carried",
    "select",
    "with_answers",
]
