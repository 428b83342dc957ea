from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.journal.samples import KEY, upload

from skyplane_gateway.journal.document import Journal, LostRow, UploadRow
from skyplane_gateway.journal.earlier_epochs import combine, seal_earlier_epochs

IDENTITY = Journal(KEY, 2, "r", 1, writer="w")


def row(epoch: int, rule: str, *uploads: UploadRow) -> Journal:
    return replace(IDENTITY, epoch=epoch, rule=rule, uploads=uploads)


def test_the_newest_journal_of_the_rule_is_continued_and_other_uploads_are_abandoned() -> None:
    journals = [
        row(1, "r", upload("a", "1"), upload("b", "1"), upload("gone")),
        row(2, "r", upload("a", "1"), upload("b", "2")),
        row(3, "other", upload("c", "3"), upload("b")),
    ]
    found = combine(journals, "r")
    assert found.journal == journals[1]
    assert set(found.abandoned) == {upload("b", "1"), upload("gone"), upload("c", "3")}
    alone = combine(journals, "another")
    assert alone.journal is None
    assert {(one.key, one.upload_id) for one in alone.abandoned} >= {("a", "1"), ("c", "3")}
    assert combine([], "r").abandoned == ()


def test_the_last_of_several_uploads_of_one_key_is_continued() -> None:
    journal = row(1, "r", upload("a", "1"), upload("a"))
    assert combine([journal], "r").abandoned == (upload("a", "1"),)


def test_lost_requests_older_than_the_newest_journal_of_the_rule_are_resolved() -> None:
    """That journal had inherited what was left of older ones."""
    resolved, left, other = (LostRow("a", since, since + 1) for since in (1.0, 2.0, 9.0))
    journals = [
        replace(IDENTITY, epoch=1, lost=(resolved,)),
        replace(IDENTITY, epoch=2, lost=(left,)),
        replace(IDENTITY, epoch=3, rule="other", lost=(other, left)),
    ]
    found = combine(journals, "r")
    assert (found.abandoned, found.lost) == ((), (left, other))
    assert found.journal is not None
    assert found.journal.lost == found.lost
    assert combine(journals, "another").lost == (resolved, left, other)


@pytest.mark.parametrize(
    ("rules", "unreadable", "named"),
    [
        ((), [1], ["1 is bad"]),
        (("r",), [], []),
        (("r",), [2], ["2 is bad"]),
        (("r", "other"), [3], ["3 is bad"]),
        # The writer of the newest journal of the rule had read it.
        (("other", "r"), [1], []),
        (("r", "other"), [2], ["2 is bad"]),
        (("other", "other"), [3, 1], ["1 is bad", "3 is bad"]),
    ],
)
async def test_an_unreadable_journal_counts_unless_one_of_the_rule_is_newer(
    rules: tuple[str, ...], unreadable: list[int], named: list[str]
) -> None:
    epochs = [epoch for epoch in range(1, 9) if epoch not in unreadable]
    rows = [row(epoch, rule) for epoch, rule in zip(epochs, rules, strict=False)]

    async def call(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert (verb, arguments["seal_before"]) == ("read_journals", 9)
        return {
            "journals": [one.to_dict() for one in rows],
            "unreadable": {str(epoch): f"{epoch} is bad" for epoch in unreadable},
        }

    found = await seal_earlier_epochs(call, "out/", KEY, 9, "r")
    assert list(found.unreadable) == named
    # An older journal may contradict the unreadable one.
    assert (found.journal is not None) is ("r" in rules and not named)
