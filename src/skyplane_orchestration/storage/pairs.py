"""The merge join of two places: which object is a copy of which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from skyplane_gateway.common.object_filter import UNBOUNDED
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.candidates import EscapeName, Lister, list_candidates
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.selection.selection_rule import SelectionRule, is_reserved
from skyplane_gateway.selection.selector import KeyCheck
from skyplane_gateway.stores import unescape_name
from skyplane_orchestration.errors import InvalidKey


@dataclass(frozen=True, slots=True)
class Pair:
    """A key of the destination, with its object there and the one at the source.

    Attributes:
        is_missing: a list of keys names the object, and the source does not have it.
    """

    key: str
    source: ObjectInfo | None
    destination: ObjectInfo | None
    is_missing: bool = False


def pairs(
    rule: SelectionRule,
    list_source: Lister,
    list_destination: Lister,
    *,
    check_key: KeyCheck | None = None,
    escape_name: EscapeName | None = None,
) -> Iterator[Pair]:
    """Both listings joined, in the order of source keys, in constant memory.

    Leaves out objects that the filters exclude, archived ones under their rule `skip`, and
    journals. Bounds are those of the source: a copy has the time of its copy. An escaped key takes
    a lookup at each end. Raises NotFound where the one object of a job without `recursive` is
    missing, or StoreError.

    Args:
        check_key: under the rule `skip`, objects whose key it refuses are left out.
        escape_name: used if the rule escapes keys.
    """
    for pair in _pairs(replace(rule, bounds=UNBOUNDED), list_source, list_destination,
                       check_key, escape_name):  # fmt: skip
        source = pair.source
        if source is None or pair.is_missing or rule.bounds.admit(source):
            yield pair


def _pairs(
    rule: SelectionRule,
    list_source: Lister,
    list_destination: Lister,
    check_key: KeyCheck | None,
    escape_name: EscapeName | None,
) -> Iterator[Pair]:
    rows = _destination_rows(rule, list_source, list_destination, escape_name)
    there = next(rows, None)
    for found in list_candidates(rule, list_source, escape_name):
        source, key = found.source, found.key
        if key == "":
            continue  # The mark of the source folder itself has no key at the destination.
        if rule.on_illegal_key == "skip" and _is_refused(check_key, key, source.size_bytes):
            continue
        if found.is_escaped or not rule.recursive:
            yield Pair(key, source, _object_at(list_destination, key), found.is_missing)
            continue
        while there is not None and there.key < key:
            yield Pair(there.key, None, there)
            there = next(rows, None)
        is_there = there is not None and there.key == key
        if not (source.archived and rule.on_archived_object == "skip"):
            yield Pair(key, source, there if is_there else None, found.is_missing)
        if is_there:
            there = next(rows, None)
    while there is not None:
        yield Pair(there.key, None, there)
        there = next(rows, None)


def _destination_rows(
    rule: SelectionRule,
    list_source: Lister,
    list_destination: Lister,
    escape_name: EscapeName | None,
) -> Iterator[ObjectInfo]:
    """The destination's objects but for copies under escaped keys, which are looked up."""
    if not rule.recursive:
        return
    escapes = rule.on_illegal_key == "escape" and escape_name is not None
    # The same rule in the opposite direction; globs are for names before their escape.
    reverse = replace(
        rule,
        source_prefix=rule.destination_prefix,
        destination_prefix=rule.source_prefix,
        include=() if escapes else rule.include,
        exclude=() if escapes else rule.exclude,
        on_illegal_key="fail",
    )
    here = folder_of(rule.source_prefix)
    there = folder_of(rule.destination_prefix)
    for row in list_candidates(reverse, list_destination):
        found = row.source
        if row.is_missing:
            continue
        if escapes and escape_name is not None:
            name = found.key.removeprefix(there)
            original = unescape_name(name)
            if not rule.matches(original):
                continue
            is_escaped = name != original and (
                escape_name(there, original, found.size_bytes) == name
            )
            if is_escaped and _object_at(list_source, here + original) is not None:
                continue  # Its pair is found from the source's side.
        yield found


def _object_at(lister: Lister, key: str) -> ObjectInfo | None:
    first = next(lister(key), None)
    return first if first is not None and first.key == key else None


def _is_refused(check_key: KeyCheck | None, key: str, size_bytes: int) -> bool:
    try:
        if check_key is not None and not is_reserved(key):
            check_key(key, size_bytes)
    except InvalidKey:
        return True
    return False
