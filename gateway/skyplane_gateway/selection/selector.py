"""Decides for each object of the source, by a merge join of two listings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from typing import Final, Literal, get_args

from skyplane_gateway.common.errors import (
    AlreadyExists,
    ConfigurationInvalid,
    InvalidKey,
    NotFound,
    NotRestored,
    StoreError,
)
from skyplane_gateway.common.job_options import RECURSIVELY, ConflictRule, JobOptions, rules_of
from skyplane_gateway.common.key_patterns import Match, literal_start, matcher, matches_below
from skyplane_gateway.common.object_filter import (
    UNBOUNDED,
    Bounds,
    common_start,
    has_key,
    has_key_below,
)
from skyplane_gateway.common.objects import (
    ASIDE_FOLDER,
    IF_ABSENT,
    PROJECT_FOLDER,
    UNCONDITIONAL,
    ObjectInfo,
    Precondition,
)
from skyplane_gateway.common.wording import with_fields
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.selection.difference import Answer, Ends, Question, compare
from skyplane_gateway.selection.key_mapping import folder_of, map_key

#: `missing`: a list of keys names the object, and the source does not have it.
Action = Literal["copy", "skip", "refuse", "missing"]

CONFLICT_RULES: tuple[ConflictRule, ...] = get_args(ConflictRule)

#: Rules under which an object of the destination may stay without a failure.
KEEPING_RULES = tuple(rule for rule in CONFLICT_RULES if rule not in ("fail", "replace"))

#: Objects of which the questions are asked together: at first, and at most.
_FIRST_STEP: Final = 64
_MOST_STEP: Final = 4096

_CHECK: Final = "check its name"

#: The folder of this project's journals, which is never copied.
JOURNAL_FOLDER = f"{PROJECT_FOLDER}jobs/"

#: A listing of the keys that start with a prefix, ascending (`ObjectStore.list`).
Lister = Callable[[str], Iterator[ObjectInfo]]
#: Takes a key and the object's size; raises InvalidKey if the destination cannot hold it.
KeyCheck = Callable[[str, int], None]
#: Takes questions about objects that both ends have; returns an answer for each.
Ask = Callable[[Sequence["Asked"]], list[Answer]]
#: (folder at the destination, name in it, size) -> a name that the destination can hold.
EscapeName = Callable[[str, str, int], str]


def is_reserved(key: str) -> bool:
    """Whether a key is reserved for journals and asides of this project, at any depth."""
    return f"/{JOURNAL_FOLDER}" in f"/{key}" or f"/{ASIDE_FOLDER}" in f"/{key}"


@dataclass(frozen=True, slots=True)
class SelectionRule(JobOptions):
    """Which objects are copied, to which keys, and the conflict rule: the `JobOptions` of a job.

    Attributes:
        files_from: sorted keys below the source folder, each once; None for all.
        bounds: bounds of size and time.
        scope: what each name below the source folder begins with that `include` selects. Keys of
            other names need not be listed.
        makes_folders: an object that stands for a folder becomes one, since no file may be in its
            place.

    Raises:
        ConfigurationInvalid: there is no such conflict rule.
    """

    source_prefix: str
    destination_prefix: str
    files_from: tuple[str, ...] | None = None
    bounds: Bounds = UNBOUNDED
    makes_folders: bool = False
    scope: str = field(init=False, repr=False, compare=False)
    _includes: Match | None = field(init=False, repr=False, compare=False)
    _excludes: Match | None = field(init=False, repr=False, compare=False)
    _excludes_below: Match | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Patterns are compiled once: a listing matches millions of keys.
        scope = commonprefix([literal_start(one) for one in self.include])  # noqa: RUF071
        object.__setattr__(self, "scope", scope if self.recursive else "")
        object.__setattr__(self, "_includes", matcher(self.include))
        object.__setattr__(self, "_excludes", matcher(self.exclude))
        object.__setattr__(self, "_excludes_below", matcher(filter(matches_below, self.exclude)))
        if self.conflict not in CONFLICT_RULES:
            raise ConfigurationInvalid(
                f"unknown conflict rule {self.conflict!r}; use one of {', '.join(CONFLICT_RULES)}"
            )

    @classmethod
    def of(cls, spec: TransferSpec, now_unix_s: float) -> SelectionRule:
        """The rule of a transfer; durations of its filters count back from that time."""
        return cls(
            source_prefix=spec.source_prefix,
            destination_prefix=spec.destination_prefix,
            files_from=spec.filter.files_from,
            bounds=spec.filter.bounds(now_unix_s),
            makes_folders=spec.destination.kind == "file",
            **rules_of(spec),
        )

    def wants(self, key: str) -> bool:
        """Whether a key may pass the filters; for one that ends in a slash, any key below it."""
        if not self.recursive:
            return True
        name = key.removeprefix(folder_of(self.source_prefix))
        if not key.endswith("/"):
            return self.matches(name)
        if self.files_from is not None and not has_key_below(self.files_from, name):
            return False
        return self._excludes_below is None or not self._excludes_below(name)

    def matches(self, name: str) -> bool:
        """Whether patterns and the list of keys select this name below the source folder."""
        if self.files_from is not None and not has_key(self.files_from, name):
            return False
        if self._includes is not None and not self._includes(name):
            return False
        return self._excludes is None or not self._excludes(name)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object that the filters select, and its key at the destination.

    Attributes:
        is_missing: a list of keys names it, and the source does not have it; then size, time
            and ETag of `source` are empty.
        is_escaped: the key is an escaped one or that of a folder's mark, and so may be out of
            order.
        answer: to the `question` about it, where there was one.
    """

    source: ObjectInfo
    key: str
    is_missing: bool = False
    is_escaped: bool = False
    answer: Answer | None = None


#: An object of the source, and the one at its key of the destination.
Pair = tuple[Candidate, ObjectInfo | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about the objects of one key at both ends."""

    question: Question
    source: ObjectInfo
    destination: ObjectInfo


@dataclass(frozen=True, slots=True)
class Selection:
    """The decision for one source object.

    Under `precondition` the destination is as it was listed; empty where nothing is written.
    `is_escaped`: the destination key is an escaped one, and so may be out of order.
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
        if not step and (ask is None or not questions(rule, [pair], both)):
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
    asked = questions(rule, step, ends)
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
    there: _Cursor | None = None
    for found in candidates(rule, list_source, escape_name):
        if found.is_escaped:
            first = next(list_destination(found.key), None)
            yield found, first if first is not None and first.key == found.key else None
            continue
        if there is None:
            there = _Cursor(list_destination(destination_listing_prefix(rule, found.key)))
        yield found, there.at(found.key)


def questions(rule: SelectionRule, pairs: Sequence[Pair], ends: Ends) -> list[Asked]:
    """The questions that the listings leave about these objects, in order."""
    if rule.conflict in ("fail", "skip", "replace"):
        return []
    asked = []
    for found, there in pairs:
        if there is None and _may_be_folder(found, ends):
            there = replace(found.source, key=found.key)
            asked.append(Asked("destination", found.source, there))
        elif there is not None:
            question = compare(rule.conflict, ends, found.source, there).question
            if question is not None:
                asked.append(Asked(question, found.source, there))
    return asked


def _may_be_folder(found: Candidate, ends: Ends) -> bool:
    """Whether it is the mark of a folder, which is at a file system as a folder: no listing has
    those."""
    is_mark = found.key.endswith("/") and found.source.size_bytes == 0 and not found.is_missing
    return is_mark and ends.destination_kind == "file"


def answered(
    asked: Sequence[Asked],
    sources: Iterable[ObjectInfo | None],
    destinations: Iterable[ObjectInfo | None],
    checksums: Iterable[Answer],
) -> list[Answer]:
    """The answers in the order of the questions, from those to each kind of question."""
    rows = {
        "source": (Answer(source=row) for row in sources),
        "destination": (Answer(destination=row) for row in destinations),
        "checksums": iter(checksums),
    }
    return [next(rows[one.question]) for one in asked]


def asking(question: Question, asked: Sequence[Asked]) -> list[Asked]:
    """Those of one kind."""
    return [one for one in asked if one.question == question]


def with_answers(
    pairs: Sequence[Pair], asked: Sequence[Asked], answers: Sequence[Answer]
) -> list[Pair]:
    """The objects with the answers to their questions."""
    found = {one.source.key: answer for one, answer in zip(asked, answers, strict=True)}
    return [(replace(one, answer=found.get(one.source.key)), at) for one, at in pairs]


def candidates(
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
        "a source is no pattern: give the folder {folder!r}, {recursive:True} and {include} "
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


class _Cursor:
    """A position in an ascending listing."""

    def __init__(self, rows: Iterator[ObjectInfo]) -> None:
        self._rows = rows
        self._row = next(rows, None)

    def at(self, key: str) -> ObjectInfo | None:
        """The object of that key, or None. Keys of later calls must be greater."""
        while self._row is not None and self._row.key < key:
            self._row = next(self._rows, None)
        return self._row if self._row is not None and self._row.key == key else None


def decide(
    rule: SelectionRule,
    candidate: Candidate,
    destination: ObjectInfo | None,
    check_key: KeyCheck | None,
    ends: Ends,
) -> Selection:
    """The decision for one candidate, given the object at the destination."""
    source, key = candidate.source, candidate.key

    def outcome(
        action: Action,
        reason: str,
        fence: Precondition = UNCONDITIONAL,
        refusal: type[StoreError] | None = None,
    ) -> Selection:
        escaped = candidate.is_escaped
        return Selection(
            source, key, destination, action, reason, fence, is_escaped=escaped, refusal=refusal
        )

    def to_copy(reason: str, fence: Precondition) -> Selection:
        archived = rule.on_archived_object
        if not source.archived or archived == "read":
            return outcome("copy", reason, fence)
        why = f"{source.archived} (rule for archived objects: {archived})"
        return outcome("skip" if archived == "skip" else "refuse", why, refusal=NotRestored)

    if candidate.is_missing:
        reason = f"{source.key!r} of the list of keys is not at the source"
        return Selection(source, key, None, "missing", reason, UNCONDITIONAL)
    if key == "":
        return outcome("skip", "it is the source folder itself: it has no name at the destination")
    if is_reserved(key):
        reason = (
            f"keys with {JOURNAL_FOLDER} or {ASIDE_FOLDER} are reserved; choose another destination"
        )
        return Selection(source, key, None, "refuse", reason, UNCONDITIONAL, refusal=InvalidKey)
    if check_key is not None:
        try:
            check_key(key, source.size_bytes)
        except InvalidKey as error:
            if rule.on_illegal_key == "skip":
                why = f"{error.message} (rule for illegal keys: skip)"
                return outcome("skip", why, refusal=InvalidKey)
            return outcome("refuse", error.message, refusal=InvalidKey)
    if destination is None:
        if candidate.answer is not None and candidate.answer.destination is not None:
            return outcome("skip", _by_rule("the folder is there", rule))
        return to_copy("it is not at the destination", IF_ABSENT)
    if rule.conflict == "fail":
        why = _by_rule("there is already an object of that name", rule)
        return outcome("refuse", why, refusal=AlreadyExists)
    if rule.conflict == "skip":
        return outcome("skip", _by_rule("there is already an object of that name", rule))
    verdict = compare(rule.conflict, ends, source, destination, candidate.answer)
    if not verdict.replaces:
        return outcome("skip", _by_rule(verdict.reason, rule))
    return to_copy(verdict.reason, Precondition(if_match=destination.etag))


def _by_rule(reason: str, rule: SelectionRule) -> str:
    """The reason of a skip or a refusal, with the rule."""
    return f"{reason} (conflict rule: {rule.conflict})"
