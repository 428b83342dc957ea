"""Decides for each object of the source, by a merge join of two listings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from skyplane_gateway.common.errors import AlreadyExists, InvalidKey, NotRestored, StoreError
from skyplane_gateway.common.key_cursor import KeyCursor
from skyplane_gateway.common.objects import (
    IF_ABSENT,
    UNCONDITIONAL,
    ObjectInfo,
    Precondition,
)
from skyplane_gateway.selection.candidates import (
    Candidate,
    EscapeName,
    Lister,
    Pair,
    destination_listing_prefix,
    list_candidates,
)
from skyplane_gateway.selection.difference import Ends, compare
from skyplane_gateway.selection.questions import Ask, open_questions, with_answers
from skyplane_gateway.selection.selection_rule import RESERVED_FOLDERS, SelectionRule, is_reserved

#: `missing`: a list of keys names the object, and the source does not have it.
Action = Literal["copy", "skip", "refuse", "missing"]

#: Objects of which the questions are asked together: at first, and at most.
_FIRST_STEP: Final = 64
_MOST_STEP: Final = 4096

#: Takes a key and the object's size; raises InvalidKey if the destination cannot hold it.
KeyCheck = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Selection:
    """The decision for one source object.

    Under `precondition` the destination is as it was listed; empty where nothing is written.
    `is_escaped`: the destination key is an escaped one, and so may be out of order.
    `is_proved`, `crc32c`, `is_edited`: see `Verdict`.
    `may_be_own_copy`: the listed object may be a copy that an earlier lead made of the source.
    `refusal`: the error of an object that is refused, or that a rule skips for that error.
    """

    source: ObjectInfo
    destination_key: str
    destination: ObjectInfo | None
    action: Action
    reason: str
    precondition: Precondition
    is_escaped: bool = False
    may_be_own_copy: bool = False
    refusal: type[StoreError] | None = None
    is_proved: bool = False
    crc32c: int | None = None
    is_edited: bool = False


def select(
    rule: SelectionRule,
    list_source: Lister,
    list_destination: Lister,
    *,
    check_key: KeyCheck | None = None,
    escape_name: EscapeName | None = None,
    ask: Ask | None = None,
    ends: Callable[[], Ends] = Ends,
) -> Iterator[Selection]:
    """One row for every source object that the filters select, in the order of source keys.

    Both listings are read once, in step, so memory does not grow with the number of objects.

    Args:
        check_key: rows whose key it refuses are refused.
        escape_name: used if the rule escapes keys.
        ask: answers questions that the listings leave; without it such objects are copied.
        ends: called when both have been listed as far as objects are compared.

    Raises:
        NotFound: without `recursive`, the object does not exist.
        StoreError: a listing failed; the rows so far are correct, the rest is unknown.
    """
    pairs = _paired(rule, list_source, list_destination, escape_name)
    size = _FIRST_STEP
    step: list[Pair] = []
    for pair in pairs:
        both = ends()
        if not step and (ask is None or not open_questions(rule, [pair], both)):
            yield decide(rule, *pair, check_key, both)
            continue
        step.append(pair)
        if ask is not None and len(step) == size:
            yield from _answered(rule, step, check_key, both, ask)
            # Where the caller stops at the first row, most questions were asked in vain.
            step, size = [], min(2 * size, _MOST_STEP)
    if ask is not None and step:
        yield from _answered(rule, step, check_key, ends(), ask)


def _answered(
    rule: SelectionRule, step: list[Pair], check_key: KeyCheck | None, ends: Ends, ask: Ask
) -> Iterator[Selection]:
    asked = open_questions(rule, step, ends)
    for found, at in with_answers(step, asked, ask(asked)):
        yield decide(rule, found, at, check_key, ends)


def _paired(
    rule: SelectionRule,
    list_source: Lister,
    list_destination: Lister,
    escape_name: EscapeName | None,
) -> Iterator[Pair]:
    """Each candidate with the object at its key."""
    # Opened late, so that an empty source sends no request to the destination.
    there: KeyCursor[ObjectInfo] | None = None
    for found in list_candidates(rule, list_source, escape_name):
        if found.is_escaped:
            first = next(list_destination(found.key), None)
            yield found, first if first is not None and first.key == found.key else None
            continue
        if there is None:
            there = KeyCursor(list_destination(destination_listing_prefix(rule, found.key)))
        yield found, there.at(found.key)


def decide(
    rule: SelectionRule,
    candidate: Candidate,
    destination: ObjectInfo | None,
    check_key: KeyCheck | None,
    ends: Ends,
) -> Selection:
    """The decision for one candidate, given the object at the destination."""
    kept_out = _kept_out(rule, candidate, destination, check_key)
    if kept_out is not None:
        return kept_out
    answer = candidate.answer
    if destination is None and answer is not None and answer.destination is not None:
        if not ends.is_trusted:
            return _decided(candidate, None, "skip", _by_rule("the folder is there", rule))
        destination = answer.destination
    if destination is None:
        return _to_copy(rule, candidate, None, "it is not at the destination", IF_ABSENT)
    if rule.conflict in ("fail", "skip"):
        why = _by_rule("there is already an object of that name", rule)
        if rule.conflict == "skip":
            return _decided(candidate, destination, "skip", why)
        return _decided(candidate, destination, "refuse", why, refusal=AlreadyExists)
    verdict = compare(rule.conflict, ends, candidate.source, destination, answer)
    if verdict.is_edited and rule.on_edited_copy == "keep":
        why = f"{verdict.reason} (rule for edited copies: keep)"
        kept = _decided(candidate, destination, "skip", why)
    elif not verdict.replaces:
        kept = _decided(candidate, destination, "skip", _by_rule(verdict.reason, rule))
    else:
        unchanged = Precondition(if_match=destination.etag)
        kept = _to_copy(rule, candidate, destination, verdict.reason, unchanged)
    if not (verdict.is_edited or verdict.is_proved):
        return kept
    return replace(
        kept, is_edited=verdict.is_edited, is_proved=verdict.is_proved, crc32c=verdict.crc32c
    )


def _kept_out(
    rule: SelectionRule,
    candidate: Candidate,
    destination: ObjectInfo | None,
    check_key: KeyCheck | None,
) -> Selection | None:
    """The decision where no rule for conflicts is asked: no source, or no key to write to."""
    source, key = candidate.source, candidate.key
    if candidate.is_missing:
        reason = f"{source.key!r} is in the list of keys, but not at the source"
        return Selection(source, key, None, "missing", reason, UNCONDITIONAL)
    if key == "":
        why = "it is the source folder itself: it has no name at the destination"
        return _decided(candidate, destination, "skip", why)
    if is_reserved(key):
        reason = f"keys with {', '.join(RESERVED_FOLDERS)} are reserved; choose another destination"
        return Selection(source, key, None, "refuse", reason, UNCONDITIONAL, refusal=InvalidKey)
    if check_key is None:
        return None
    try:
        check_key(key, source.size_bytes)
    except InvalidKey as error:
        if rule.on_illegal_key == "skip":
            why = f"{error.message} (rule for illegal keys: skip)"
            return _decided(candidate, destination, "skip", why, refusal=InvalidKey)
        return _decided(candidate, destination, "refuse", error.message, refusal=InvalidKey)
    return None


def _to_copy(
    rule: SelectionRule,
    candidate: Candidate,
    destination: ObjectInfo | None,
    reason: str,
    fence: Precondition,
) -> Selection:
    """A copy, unless the source has archived the object and the rule does not read those."""
    archived, how = candidate.source.archived, rule.on_archived_object
    if not archived or how == "read":
        return _decided(candidate, destination, "copy", reason, fence)
    why = f"{archived} (rule for archived objects: {how})"
    action: Action = "skip" if how == "skip" else "refuse"
    return _decided(candidate, destination, action, why, refusal=NotRestored)


def _decided(
    candidate: Candidate,
    destination: ObjectInfo | None,
    action: Action,
    reason: str,
    fence: Precondition = UNCONDITIONAL,
    *,
    refusal: type[StoreError] | None = None,
) -> Selection:
    return Selection(
        candidate.source,
        candidate.key,
        destination,
        action,
        reason,
        fence,
        is_escaped=candidate.is_escaped,
        refusal=refusal,
    )


def _by_rule(reason: str, rule: SelectionRule) -> str:
    """The reason of a skip or a refusal, with the rule."""
    return f"{reason} (conflict rule: {rule.conflict})"
