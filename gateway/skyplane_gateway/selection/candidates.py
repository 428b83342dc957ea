"""The objects that a rule selects, and their keys at the destination."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.common.errors import NotFound
from skyplane_gateway.common.job_options import RECURSIVELY
from skyplane_gateway.common.object_filter import common_start
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.common.wording import with_fields
from skyplane_gateway.selection.difference import ComparisonAnswer
from skyplane_gateway.selection.key_mapping import folder_of, map_key
from skyplane_gateway.selection.selection_rule import SelectionRule, is_reserved

_CHECK: Final = "check its name"

#: A listing of the keys that start with a prefix, ascending (`ObjectStore.list`).
Lister = Callable[[str], Iterator[ObjectInfo]]
#: (folder at the destination, name in it, size) -> a name that the destination can hold.
EscapeName = Callable[[str, str, int], str]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that the filters select, and its key at the destination.

    Attributes:
        is_missing: a list of keys names it, and the source does not have it; then size, time
            and ETag of `source` are empty.
        is_escaped: the key is an escaped one or that of a folder's mark, and so may be out of
            order.
        answer: to the question about it, where there was one.
    """

    source: ObjectInfo
    key: str
    is_missing: bool = False
    is_escaped: bool = False
    answer: ComparisonAnswer | None = None


#: An object of the source, and the one at its key of the destination.
Pair = tuple[Candidate, ObjectInfo | None]


def list_candidates(
    rule: SelectionRule, list_source: Lister, escape_name: EscapeName | None = None
) -> Iterator[Candidate]:
    """The selected objects with their keys at the destination, in the order of source keys.

    Errors as `select`.
    """
    found = _candidates(rule, list_source)
    if rule.makes_folders:
        found = map(_as_folder, found)
    folder = _named_folder(rule)
    if rule.on_illegal_key != "escape" or escape_name is None or folder is None:
        yield from found
        return
    for one in found:
        name = one.key.removeprefix(folder)
        key = folder + escape_name(folder, name, one.source.size_bytes) if name else one.key
        yield one if key == one.key else replace(one, key=key, is_escaped=True)


def _as_folder(one: Candidate) -> Candidate:
    if not one.source.is_folder or one.key.endswith("/"):
        return one
    return replace(one, key=f"{one.key}/", is_escaped=True)


def _named_folder(rule: SelectionRule) -> str | None:
    """The folder at the destination where objects keep their names; None where they do not."""
    if rule.recursive:
        return folder_of(rule.destination_prefix)
    prefix = rule.destination_prefix.removeprefix("/")
    return prefix if not prefix or prefix.endswith("/") else None


def _candidates(rule: SelectionRule, list_source: Lister) -> Iterator[Candidate]:
    if not rule.recursive:
        yield from _single(rule, list_source)
        return
    folder = folder_of(rule.source_prefix)
    for source, is_missing in _listed(rule, list_source, folder):
        if is_reserved(source.key) or not (is_missing or rule.bounds.admit(source)):
            continue
        key = map_key(rule.source_prefix, source.key, rule.destination_prefix, recursive=True)
        yield Candidate(source, key, is_missing)


def _listed(
    rule: SelectionRule, list_source: Lister, folder: str
) -> Iterator[tuple[ObjectInfo, bool]]:
    """The objects below a folder whose names match, and whether each is missing, in key order."""
    if rule.files_from is None:
        for source in list_source(folder + rule.scope):
            if rule.matches(source.key.removeprefix(folder)):
                yield source, False
        return
    # The globs apply to the list as well: what they leave out cannot be missing.
    wanted = deque(folder + name for name in rule.files_from if rule.matches(name))
    if not wanted:
        return
    for source in list_source(common_start((wanted[0], wanted[-1]))):
        while wanted and wanted[0] < source.key:
            yield ObjectInfo(wanted.popleft(), 0, "", 0.0), True
        if not wanted:
            return
        if wanted[0] == source.key:
            wanted.popleft()
            yield source, False
    for key in wanted:
        yield ObjectInfo(key, 0, "", 0.0), True


def destination_listing_prefix(rule: SelectionRule, key: str) -> str:
    """The prefix to list at the destination; for a single object, its `key` there."""
    if not rule.recursive:
        return key
    return folder_of(rule.destination_prefix) + (common_start(rule.files_from or ()) or rule.scope)


def glob_advice(key: str) -> str:
    """What to do where a source has the form of a pattern; empty for any other one."""
    at = min((key.index(one) for one in "*?[" if one in key), default=None)
    if at is None:
        return ""
    start = key.rfind("/", 0, at) + 1
    return with_fields(
        "a source cannot be a pattern: give the folder {folder!r}, {recursive:True} and {include} "
        "{name!r}",
        folder=key[:start],
        name=key[start:],
    )


def _single(rule: SelectionRule, list_source: Lister) -> Iterator[Candidate]:
    """The object of that key: the first row of a listing by its whole key."""
    wanted = rule.source_prefix
    if wanted in ("", "/"):
        raise NotFound("no object is given; to copy the whole bucket, " + RECURSIVELY)
    source = next(list_source(wanted), None)
    if source is None or source.key != wanted:
        folder = folder_of(wanted)
        if next(list_source(folder), None) is None:
            raise NotFound(
                f"there is no object {wanted!r} at the source; " + (glob_advice(wanted) or _CHECK)
            )
        raise NotFound(
            f"there is no object {wanted!r} at the source; to copy the objects below {folder!r}, "
            + RECURSIVELY
        )
    name = source.key[source.key.rstrip("/").rfind("/") + 1 :]
    if rule.matches(name) and rule.bounds.admit(source):
        key = map_key(wanted, source.key, rule.destination_prefix, recursive=False)
        yield Candidate(source, key)
