"""What the listings of both ends leave open about single objects, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.candidates import Candidate, Pair
from skyplane_gateway.selection.difference import ComparisonAnswer, Ends, QuestionKind, compare
from skyplane_gateway.selection.selection_rule import SelectionRule

#: Takes questions about objects that both ends have; returns an answer for each.
Ask = Callable[[Sequence["ComparisonQuestion"]], list[ComparisonAnswer]]


@dataclass(frozen=True, slots=True)
class ComparisonQuestion:
    """A question about the objects of one key at both ends."""

    kind: QuestionKind
    source: ObjectInfo
    destination: ObjectInfo


def open_questions(
    rule: SelectionRule, pairs: Sequence[Pair], ends: Ends
) -> list[ComparisonQuestion]:
    """The questions that the listings leave about these objects, in order."""
    if rule.conflict in ("fail", "skip", "replace"):
        return []
    asked = []
    for found, there in pairs:
        if there is None and (ends.is_trusted or _may_be_folder(found, ends)):
            there = replace(found.source, key=found.key)
            asked.append(ComparisonQuestion("destination", found.source, there))
        elif there is not None:
            question = compare(rule.conflict, ends, found.source, there).question
            if question is not None:
                asked.append(ComparisonQuestion(question, found.source, there))
    return asked


def _may_be_folder(found: Candidate, ends: Ends) -> bool:
    """Whether it is the mark of a folder, which is at a file system as a folder: no listing has
    those."""
    is_mark = found.key.endswith("/") and found.source.size_bytes == 0 and not found.is_missing
    return is_mark and ends.destination_kind == "file"


def answers_in_order(
    asked: Sequence[ComparisonQuestion],
    sources: Iterable[ObjectInfo | None],
    destinations: Iterable[ObjectInfo | None],
    checksums: Iterable[ComparisonAnswer],
) -> list[ComparisonAnswer]:
    """The answers in the order of the questions, from those to each kind of question."""
    rows = {
        "source": (ComparisonAnswer(source=row) for row in sources),
        "destination": (ComparisonAnswer(destination=row) for row in destinations),
    }
    by_checksum = iter(checksums)
    return [next(rows.get(one.kind, by_checksum)) for one in asked]


def of_checksums(asked: Sequence[ComparisonQuestion]) -> list[ComparisonQuestion]:
    """The questions whose answers may need to read objects."""
    return [one for one in asked if one.kind not in ("source", "destination")]


def of_kind(kind: QuestionKind, asked: Sequence[ComparisonQuestion]) -> list[ComparisonQuestion]:
    return [one for one in asked if one.kind == kind]


def with_answers(
    pairs: Sequence[Pair], asked: Sequence[ComparisonQuestion], answers: Sequence[ComparisonAnswer]
) -> list[Pair]:
    found = {one.source.key: answer for one, answer in zip(asked, answers, strict=True)}
    return [(replace(one, answer=found.get(one.source.key)), at) for one, at in pairs]
