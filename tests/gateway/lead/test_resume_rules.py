from __future__ import annotations

from dataclasses import replace

import pytest

from skyplane_gateway.common.objects import (
    IF_ABSENT,
    UNCONDITIONAL,
    ObjectInfo,
    PartInfo,
    Precondition,
)
from skyplane_gateway.journal.document import DoneRow, FailedRow, Journal, UploadRow
from skyplane_gateway.lead.resume_rules import DoubtRule, EarlierJournal, keep_parts
from skyplane_gateway.selection.difference import MARGIN_S
from skyplane_gateway.selection.selector import Selection

SOURCE = ObjectInfo("from/k", 25, "v1", 100.0)
THERE = ObjectInfo("k", 25, "w1", 300.0)
START = Journal(transfer_key="ab" * 16, epoch=1, rule="r", chunk_bytes=10, began_unix_s=200.5)
DONE = DoneRow("k", "w1", "v1", 25, 7)
UPLOAD = UploadRow("k", "id", "from/k", "v1", 25, 10)

ABSENT = Selection(SOURCE, "k", None, "copy", "it is not there", IF_ABSENT)
REPLACES = Selection(SOURCE, "k", THERE, "copy", "it replaces", Precondition(if_match="w1"))
REFUSED = Selection(SOURCE, "k", THERE, "refuse", "it is there", UNCONDITIONAL)
SKIPPED = replace(REFUSED, action="skip")
ROWS = [ABSENT, REPLACES, REFUSED, SKIPPED]


def past(**fields: object) -> EarlierJournal:
    return EarlierJournal(replace(START, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("journal", [None, START])
def test_without_a_journal_the_rule_decides(row: Selection, journal: Journal | None) -> None:
    decision = EarlierJournal(journal).decide(row)
    assert (decision.verdict, decision.row, decision.upload) == ("as-selected", row, None)


@pytest.mark.parametrize("row", [REPLACES, REFUSED, SKIPPED])
def test_our_unchanged_object_is_finished(row: Selection) -> None:
    decision = past(done=(DONE,)).decide(row)
    assert (decision.verdict, decision.done) == ("finished", DONE)


@pytest.mark.parametrize("row", [REPLACES, REFUSED, SKIPPED])
def test_our_object_of_an_older_source_is_replaced_whatever_the_rule(
    row: Selection,
) -> None:
    decision = past(done=(replace(DONE, source_etag="v0"),)).decide(row)
    assert decision.verdict == "as-selected"
    assert decision.row.action == "copy"
    assert decision.row.precondition == Precondition(if_match="w1")


@pytest.mark.parametrize("row", ROWS)
def test_the_rule_decides_where_another_writer_replaced_our_object(row: Selection) -> None:
    decision = past(done=(replace(DONE, etag="w0"),)).decide(row)
    assert (decision.verdict, decision.row) == ("as-selected", row)


@pytest.mark.parametrize("row", [REPLACES, REFUSED, SKIPPED])
def test_a_key_up_to_through_is_finished_where_size_and_age_fit(row: Selection) -> None:
    assert past(through="k").decide(row).verdict == "finished"
    assert past(through="j").decide(row).verdict == "as-selected"
    shorter = replace(row, destination=replace(THERE, size_bytes=24))
    assert past(through="k").decide(shorter).verdict == "as-selected"


@pytest.mark.parametrize("row", [REPLACES, REFUSED, SKIPPED])
def test_a_copy_with_an_older_time_of_its_own_counts_from_when_it_was_written(
    row: Selection,
) -> None:
    dated = replace(THERE, last_modified=50.0, stored_unix_s=300.0)
    assert past(through="k").decide(replace(row, destination=dated)).verdict == "finished"
    begun = past(begun=("k",)).decide(replace(SKIPPED, destination=dated))
    assert begun.verdict == past(begun=("k",)).decide(SKIPPED).verdict == "compare"


@pytest.mark.parametrize("source_s", [180.1, 299.0, 300.0, 301.0])
def test_a_source_that_was_written_around_the_time_of_its_copy_is_copied_again(
    source_s: float,
) -> None:
    """It may have been overwritten between the read and the commit of its copy."""
    source = replace(SOURCE, last_modified=source_s)
    assert source_s + MARGIN_S > THERE.last_modified
    journal = past(through="k")
    assert journal.decide(replace(REPLACES, source=source)).verdict == "as-selected"
    # It may be ours, so the rule does not refuse it; an object that the rule keeps stays.
    decision = journal.decide(replace(REFUSED, source=source))
    assert (decision.verdict, decision.crc32c) == ("compare", None)
    assert decision.otherwise is not None
    assert decision.otherwise.row.action == "refuse"
    decision = journal.decide(replace(SKIPPED, source=source))
    assert (decision.verdict, decision.row.action) == ("as-selected", "skip")
    assert "an earlier epoch may have copied it" in decision.row.reason


@pytest.mark.parametrize("row", [REPLACES, REFUSED, SKIPPED])
@pytest.mark.parametrize("source_s", [100.0, 300.0])
def test_checksums_decide_before_times(row: Selection, source_s: float) -> None:
    source = replace(SOURCE, last_modified=source_s, crc32c=7)
    equal = replace(row, source=source, destination=replace(THERE, crc32c=7))
    assert past(through="k").decide(equal).verdict == "finished"
    other = replace(row, source=source, destination=replace(THERE, crc32c=8))
    assert past(through="k").decide(other).verdict != "finished"


@pytest.mark.parametrize("fields", [{"began_unix_s": 301.0}, {"began_unix_s": None}])
def test_an_object_from_before_the_first_epoch_is_not_our_copy(
    fields: dict[str, object],
) -> None:
    journal = past(through="k", **fields)
    decision = journal.decide(SKIPPED)
    assert (decision.verdict, decision.row) == ("as-selected", SKIPPED)
    # Under a rule that keeps no objects, every ended key was copied.
    assert journal.decide(REPLACES).verdict == "finished"


def test_times_of_a_store_are_rounded_to_seconds() -> None:
    assert past(through="k", began_unix_s=300.9).decide(SKIPPED).verdict == "finished"


def test_a_missing_object_is_copied_although_through_has_passed_it() -> None:
    assert past(through="k").decide(ABSENT).verdict == "as-selected"


@pytest.mark.parametrize(
    "fields", [{"begun": ("k",)}, {"failed": (FailedRow("k", "c"),), "failed_count": 1}]
)
def test_through_does_not_cover_keys_that_the_journal_names(fields: dict[str, object]) -> None:
    assert past(through="z", **fields).decide(REPLACES).verdict == "as-selected"


@pytest.mark.parametrize(
    ("fields", "there", "is_named"),
    [
        ({"begun": ("k",)}, THERE, True),
        ({"through": "z", "begun": ("k",)}, THERE, True),
        ({"through": "j"}, THERE, False),
        ({"begun": ("k",)}, replace(THERE, size_bytes=24), False),
        ({"begun": ("k",), "began_unix_s": 301.0}, THERE, False),
    ],
    ids=["begun", "begun before through", "unnamed", "size", "before"],
)
def test_an_object_that_an_earlier_lead_may_have_written_is_looked_for_before_it_is_replaced(
    fields: dict[str, object], there: ObjectInfo, is_named: bool
) -> None:
    row = replace(REPLACES, destination=there)
    decision = past(**fields).decide(row)
    assert decision.verdict == "as-selected"
    assert decision.row == replace(row, may_be_own_copy=is_named)


def test_an_ended_object_whose_source_is_young_is_looked_for_too() -> None:
    row = replace(REPLACES, source=replace(SOURCE, last_modified=300.0))
    decision = past(through="k").decide(row)
    assert (decision.verdict, decision.row.may_be_own_copy) == ("as-selected", True)


def test_through_does_not_cover_objects_that_are_published_last() -> None:
    assert past(through="z").decide(REPLACES, is_last=True).verdict == "as-selected"


def test_a_begun_key_is_compared_before_it_is_refused() -> None:
    decision = past(begun=("k",)).decide(REFUSED)
    assert (decision.verdict, decision.crc32c) == ("compare", None)
    assert decision.otherwise is not None
    assert (decision.otherwise.verdict, decision.otherwise.row) == ("as-selected", REFUSED)
    other = replace(REFUSED, destination=replace(THERE, size_bytes=1))
    assert past(begun=("k",)).decide(other).verdict == "as-selected"


DOUBTS: list[dict[str, object]] = [
    {"begun": ("k",)},
    {"through": "z", "begun": ("k",)},
    {"through": "z", "failed": (FailedRow("k", "permission-denied"),), "failed_count": 1},
    {"failed": (FailedRow("k", "checksum-mismatch"),), "failed_count": 1},
    {"begun": ("k",), "done": (replace(DONE, etag="w0"),)},
    {"uploads": (replace(UPLOAD, crc32c=7),)},
]


@pytest.mark.parametrize("fields", DOUBTS)
def test_a_possible_unverified_write_is_compared_before_the_rule_keeps_it(
    fields: dict[str, object],
) -> None:
    """Kept unseen, a failure would become a success after a retry."""
    decision = past(**fields).decide(SKIPPED)
    assert (decision.verdict, decision.row) == ("compare", SKIPPED)
    assert decision.otherwise is not None
    assert (decision.otherwise.verdict, decision.otherwise.row) == ("unproved", SKIPPED)
    assert decision.otherwise.upload == decision.upload


@pytest.mark.parametrize("fields", [*DOUBTS, {"uploads": (UPLOAD,)}])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_replace_if_different_replaces_our_unverified_write(
    fields: dict[str, object], version: str
) -> None:
    journal = replace(START, **fields)  # type: ignore[arg-type]
    row = replace(SKIPPED, source=replace(SOURCE, etag=version))
    decision = EarlierJournal(journal, DoubtRule(replaces_different=True)).decide(row)
    assert decision.verdict == "compare"
    assert decision.otherwise is not None
    assert decision.otherwise.verdict == "as-selected"
    assert decision.otherwise.row.action == "copy"
    assert decision.otherwise.row.precondition == Precondition(if_match="w1")
    assert decision.otherwise.upload == decision.upload


@pytest.mark.parametrize(
    ("there", "fields"),
    [
        (THERE, {"begun": ("k",), "began_unix_s": 300.5 + MARGIN_S}),
        (replace(THERE, size_bytes=24), {"begun": ("k",)}),
        (replace(THERE, last_modified=99.0), {"begun": ("k",)}),
        (THERE, {"failed": (FailedRow("k", "already-exists"),), "failed_count": 1}),
        (THERE, {"failed": (FailedRow("k", "precondition-failed"),), "failed_count": 1}),
        (THERE, {"done": (replace(DONE, etag="w0"),)}),
        (THERE, {"through": "j"}),
        (THERE, {"begun": ("k",), "began_unix_s": None}),
    ],
    ids=["before", "size", "older", "refused", "a stranger's", "replaced", "unnamed", "no begin"],
)
def test_an_object_that_cannot_be_our_unverified_write_is_kept(
    there: ObjectInfo, fields: dict[str, object]
) -> None:
    row = replace(SKIPPED, destination=there)
    decision = past(**fields).decide(row)
    assert (decision.verdict, decision.row) == ("as-selected", row)


@pytest.mark.parametrize("fields", DOUBTS)
def test_a_transfer_without_verification_keeps_what_the_rule_keeps(
    fields: dict[str, object],
) -> None:
    doubt = DoubtRule.of(conflict="skip", verify="none", trusts_checksum=False)
    decision = EarlierJournal(replace(START, **fields), doubt).decide(SKIPPED)  # type: ignore[arg-type]
    kept = decision.otherwise or decision
    assert (kept.verdict, kept.row) == ("as-selected", SKIPPED)
    # A begun commit is compared: its checksum is known.
    assert (decision.verdict == "compare") == ("uploads" in fields)


def test_a_begun_key_is_compared_only_where_objects_exist_before_they_are_verified() -> None:
    begun, failed = DOUBTS[0], DOUBTS[2]
    for verify, trusts, verdict in (
        ("stored", True, "as-selected"),
        ("stored", False, "compare"),
        ("reread", True, "compare"),
    ):
        doubt = DoubtRule.of(conflict="skip", verify=verify, trusts_checksum=trusts)
        there = EarlierJournal(replace(START, **begun), doubt)  # type: ignore[arg-type]
        assert there.decide(SKIPPED).verdict == verdict
        assert EarlierJournal(replace(START, **failed), doubt).decide(SKIPPED).verdict == "compare"  # type: ignore[arg-type]


def test_an_upload_is_aborted_where_another_writer_was_first() -> None:
    decision = past(uploads=(UPLOAD,)).decide(SKIPPED)
    assert (decision.verdict, decision.upload, decision.row) == ("as-selected", UPLOAD, SKIPPED)


@pytest.mark.parametrize("code", ["store-unavailable", "precondition-failed", "checksum-mismatch"])
@pytest.mark.parametrize("through", [None, "z"])
def test_a_failed_key_is_compared_before_it_is_refused(code: str, through: str | None) -> None:
    """It may have failed because our own write could not be compared."""
    journal = past(through=through, failed=(FailedRow("k", code),), failed_count=1)
    decision = journal.decide(REFUSED)
    assert (decision.verdict, decision.crc32c) == ("compare", None)
    assert decision.otherwise is not None
    assert decision.otherwise.row == REFUSED


def test_a_refused_key_is_refused_again_without_a_read() -> None:
    failed = FailedRow("k", "already-exists")
    decision = past(through="z", failed=(failed,), failed_count=1).decide(REFUSED)
    assert (decision.verdict, decision.row) == ("as-selected", REFUSED)


@pytest.mark.parametrize("row", [ABSENT, REPLACES])
def test_an_upload_is_continued_under_todays_precondition(row: Selection) -> None:
    decision = past(uploads=(UPLOAD,)).decide(row)
    assert (decision.verdict, decision.row, decision.upload) == ("continue", row, UPLOAD)


@pytest.mark.parametrize(
    "change", [{"source_etag": "v0"}, {"source_key": "from/other"}, {"size_bytes": 24}]
)
@pytest.mark.parametrize("row", ROWS)
def test_an_upload_of_another_version_is_aborted(row: Selection, change: dict[str, object]) -> None:
    upload = replace(UPLOAD, **change)  # type: ignore[arg-type]
    decision = past(uploads=(upload,)).decide(row)
    assert (decision.verdict, decision.row) == ("as-selected", row)
    assert decision.upload == upload


def test_an_intended_upload_is_aborted() -> None:
    upload = replace(UPLOAD, upload_id=None)
    decision = past(uploads=(upload,)).decide(ABSENT)
    assert (decision.verdict, decision.upload) == ("as-selected", upload)


def test_an_upload_whose_commit_had_begun_is_compared() -> None:
    upload = replace(UPLOAD, crc32c=77)
    decision = past(uploads=(upload,)).decide(REPLACES)
    assert (decision.verdict, decision.crc32c) == ("compare", 77)
    assert decision.otherwise is not None
    assert decision.otherwise.verdict == "continue"
    # There is no object to compare with: the commit did not happen.
    assert past(uploads=(upload,)).decide(ABSENT).verdict == "continue"


def test_an_upload_of_a_key_with_an_object_is_compared_or_aborted() -> None:
    decision = past(uploads=(UPLOAD,)).decide(REFUSED)
    assert decision.verdict == "compare"
    assert decision.otherwise is not None
    assert (decision.otherwise.verdict, decision.otherwise.upload) == ("as-selected", UPLOAD)
    assert past(uploads=(UPLOAD,)).decide(SKIPPED).verdict == "as-selected"


def test_parts_with_the_right_length_and_a_checksum_are_kept() -> None:
    good = [PartInfo(1, "a", 10, 1), PartInfo(3, "c", 5, 3)]
    bad = [
        PartInfo(2, "b", 10, None),
        PartInfo(2, "b", 9, 2),
        PartInfo(3, "c", 10, 3),
        PartInfo(4, "d", 0, 0),
        PartInfo(0, "e", 10, 0),
    ]
    for part in bad:
        assert keep_parts(UPLOAD, [part]) == {}
    assert keep_parts(UPLOAD, good) == {1: good[0], 3: good[1]}


def test_parts_that_the_store_has_copied_need_no_checksum() -> None:
    upload = replace(UPLOAD, is_server_side=True)
    part = PartInfo(1, "p", 10)
    assert keep_parts(upload, [part, replace(part, number=2, size_bytes=9)]) == {1: part}
