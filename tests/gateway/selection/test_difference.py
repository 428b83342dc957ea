"""When an object is replaced that both ends have: the pure decision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.kept_properties import KeptProperties
from skyplane_gateway.common.objects import (
    ObjectAttributes,
    ObjectInfo,
    RecordedCopy,
    time_pin,
)
from skyplane_gateway.common.source_version import marked, recorded_source
from skyplane_gateway.selection.difference import MARGIN_S, ComparisonAnswer, Ends, Verdict, compare
from skyplane_gateway.selection.selection_rule import SelectionRule
from skyplane_gateway.selection.selector import select

KINDS: Final = ("s3", "gcs", "azure", "file")
#: Kinds whose listings show metadata.
SHOWING: Final = ("gcs", "azure")
NOW_S: Final = 1_700_000_000.0
#: Of the writes to a file system that stores nanoseconds; round times look like coarser steps.
FRACTION_S: Final = 0.123_456_7
ONE: Final = '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"'
TWO: Final = '"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"'


@dataclass(frozen=True)
class Version:
    """One version of a source.

    Attributes:
        at_s: when it was written, by the clock of its store.
        stamp_s: the time that it shows, which for a file may be any.
    """

    content: int
    at_s: float
    stamp_s: float


def listed(kind: str, version: Version, number: int, *, whole: bool = False) -> ObjectInfo:
    """The row of a source; `whole`: its server lists whole seconds."""
    if kind == "file":
        ns = round(version.stamp_s * 1e9)
        stored = max(version.at_s, version.stamp_s)
        return ObjectInfo("k", 3, f"{ns}-3-{number}", version.stamp_s, stored_unix_s=stored)
    at_s = float(int(version.at_s)) if whole else round(version.at_s, 3)
    etag = {"s3": f'"{version.content:032x}-2"', "gcs": f"{number}", "azure": f'"0x{number}"'}[kind]
    crc32c = version.content if kind == "gcs" else None
    return ObjectInfo("k", 3, etag, at_s, crc32c)


def copied(
    ends: Ends, source: ObjectInfo, content: int, at_s: float
) -> tuple[ObjectInfo, ComparisonAnswer]:
    """The listed copy of that version, written then, and what a look at it tells."""
    kind = ends.destination_kind
    attributes = ObjectAttributes()
    if ends.source_kind == "file":
        seconds, ns = divmod(int(source.etag.split("-")[0]), 10**9)
        attributes = ObjectAttributes(metadata=(("mtime", f"{seconds}.{ns:09}"),))
    mark = KeptProperties(kind, False, False, source_kind=ends.source_kind).mark_of(source)
    attributes = marked(attributes, mark)
    if kind == "file":
        stamp_s = float(dict(attributes.metadata)["mtime"])
        stored_s = max(at_s + ends.ahead_s, stamp_s) + FRACTION_S
        row = ObjectInfo("to", 3, "there", stamp_s, stored_unix_s=stored_s)
        return row, ComparisonAnswer(destination=row)
    crc32c = content if kind == "gcs" else None
    made_of = recorded_source(attributes) if kind in SHOWING else None
    row = ObjectInfo("to", 3, "there", at_s + ends.ahead_s, crc32c, made_of=made_of)
    return row, ComparisonAnswer(destination=replace(row, attributes=attributes))


def verdict(
    ends: Ends, source: ObjectInfo, there: ObjectInfo, answer: ComparisonAnswer
) -> tuple[Verdict, bool]:
    """The verdict, and whether it took a question."""
    first = compare("replace-if-different", ends, source, there)
    if first.question is None:
        return first, False
    given = answer if first.question == "destination" else ComparisonAnswer(source=source)
    return compare("replace-if-different", ends, source, there, given), True


@given(
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.floats(0, 5 * MARGIN_S),
    st.floats(0, MARGIN_S / 2),
    st.floats(0.002, 5 * MARGIN_S),
    st.sampled_from([0.0, -900.0, 900.0]),
    st.booleans(),
)
@settings(deadline=None, max_examples=400)
def test_a_copy_of_this_version_is_kept_and_one_of_another_is_replaced(
    source_kind: str,
    destination_kind: str,
    age_s: float,
    copy_s: float,
    later_s: float,
    ahead_s: float,
    whole: bool,
) -> None:
    """Whenever the next version is written, before or after the commit of the copy.

    The commit is within the margin of the last look at the source. Clocks differ. Bytes of the
    same version cost no copy: syncs converge.
    """
    ends = Ends(source_kind, destination_kind, ahead_s)
    first = Version(1, NOW_S - age_s, NOW_S - age_s)
    second = Version(2, NOW_S + later_s, NOW_S + later_s)
    old, new = (listed(source_kind, row, number, whole=whole) for number, row in
                enumerate((first, second), start=1))  # fmt: skip
    there, answer = copied(ends, old, 1, NOW_S + copy_s)
    same, _ = verdict(ends, old, there, answer)
    assert not same.replaces, same.reason
    is_told = not (
        # The lead waits for the end of such a second, before it reads.
        destination_kind == "file" and source_kind != "file" and new.last_modified
        == old.last_modified
    )  # fmt: skip
    other, _ = verdict(ends, new, there, answer)
    assert other.replaces or not is_told, other.reason


@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.floats(1, 1e6), st.booleans())
@settings(deadline=None, max_examples=200)
def test_old_sources_take_no_request(
    source_kind: str, destination_kind: str, age_s: float, whole: bool
) -> None:
    ends = Ends(source_kind, destination_kind, 3.0)
    first = Version(1, NOW_S - age_s - MARGIN_S, NOW_S - age_s - MARGIN_S)
    old = listed(source_kind, first, 1, whole=whole)
    there, answer = copied(ends, old, 1, NOW_S + 4.0)
    found, was_asked = verdict(ends, old, there, answer)
    assert (found.replaces, was_asked) == (False, False)


@pytest.mark.parametrize(
    ("ends", "source", "there", "replaces"),
    [
        # Equal ETags of S3 prove equality, others prove nothing.
        (("s3", "s3"), ONE, ONE, False),
        (("s3", "s3"), ONE, TWO, None),
        (("s3", "s3"), '"abc"', '"abc"', None),
        (("s3", "s3"), '"CRC32C-B8uf9g=="', '"CRC32C-B8uf9g=="', False),
        (("s3", "s3"), '"CRC32C-B8uf9g=="', '"CRC32C-B8uf9a=="', None),
        (("s3", "s3"), time_pin(NOW_S, 3), time_pin(NOW_S, 3), None),
        (("s3", "s3"), ONE[:-1] + '-2"', ONE[:-1] + '-2"', False),
        (("s3", "s3"), ONE[:-1] + '-2"', ONE, None),
        # An ETag of Azure is no checksum.
        (("azure", "azure"), ONE, ONE, None),
    ],
)
def test_etags(ends: Any, source: str, there: str, replaces: bool | None) -> None:
    rows = ObjectInfo("k", 3, source, NOW_S), ObjectInfo("to", 3, there, NOW_S)
    found = compare("replace-if-different", Ends(*ends), *rows)
    assert found.question == ("destination" if replaces is None else None)
    assert replaces is None or found.replaces is replaces


def test_a_wrong_md5_that_an_option_ignores_proves_nothing() -> None:
    rows = ObjectInfo("k", 3, ONE, NOW_S), ObjectInfo("to", 3, ONE, NOW_S)
    found = compare("replace-if-different", Ends("s3", "s3", uses_md5=False), *rows)
    assert found.question == "destination"


def test_the_md5_of_google_is_compared_with_an_etag_of_s3() -> None:
    here = ObjectInfo("k", 3, ONE, NOW_S)
    there = ObjectInfo("to", 3, "7", NOW_S - 9999, crc32c=5, md5=ONE.strip('"'), made_of="")
    assert not compare("replace-if-different", Ends("s3", "gcs"), here, there).replaces
    other = replace(there, md5=TWO.strip('"'))
    assert compare("replace-if-different", Ends("s3", "gcs"), here, other).replaces


@pytest.mark.parametrize(
    ("made_of", "replaces"),
    [("azure:0x1", False), ("azure:0x2", True), ("s3:0x1", True), ("", True), ("mtime:5", True)],
)
def test_a_look_decides_by_what_the_copy_was_made_of(made_of: str, replaces: bool) -> None:
    here = ObjectInfo("k", 3, '"0x1"', NOW_S)
    there = ObjectInfo("to", 3, ONE, NOW_S + 9)
    name = "skyplanesource" if made_of else "other"
    seen = replace(there, attributes=ObjectAttributes(metadata=((name, made_of),)))
    ends = Ends("azure", "s3")
    found = compare("replace-if-different", ends, here, there, ComparisonAnswer(destination=seen))
    assert (found.replaces, found.question) == (replaces, None)
    # What was written meanwhile is no copy of which anything is known.
    moved = ComparisonAnswer(destination=replace(seen, etag=TWO))
    assert compare("replace-if-different", ends, here, there, moved).replaces
    assert compare("replace-if-different", ends, here, there, ComparisonAnswer()).replaces


@pytest.mark.parametrize(
    ("made_of", "written_s", "replaces"),
    [
        ("azure:0x1", -9999.0, False),
        ("azure:0x2", 9999.0, True),
        # A copy of an earlier release, of a source that was a copy of a file.
        ("mtime:1700000000000000000", 9999.0, False),
        ("", 9999.0, False),
        ("", 100.0, True),
        ("", -9999.0, True),
    ],
)
def test_a_listing_with_metadata_decides_without_a_look(
    made_of: str, written_s: float, replaces: bool
) -> None:
    here = ObjectInfo("k", 3, '"0x1"', NOW_S)
    there = ObjectInfo("to", 3, "7", NOW_S + written_s, made_of=made_of)
    found = compare("replace-if-different", Ends("azure", "gcs"), here, there)
    assert (found.replaces, found.question) == (replaces, None)


@pytest.mark.parametrize(
    ("time_s", "mtime_s", "changed_s", "is_same"),
    [
        (NOW_S, NOW_S, NOW_S + 5.123456, True),
        (NOW_S + 0.001, NOW_S, NOW_S + 5.123456, False),
        # File systems with whole seconds, and with even ones.
        (NOW_S + 0.9, NOW_S, NOW_S + 6, True),
        (NOW_S + 1.9, NOW_S, NOW_S + 6, True),
        (NOW_S + 1.9, NOW_S, NOW_S + 7, False),
        (NOW_S + 2.1, NOW_S, NOW_S + 6, False),
        (NOW_S - 0.5, NOW_S, NOW_S + 6, False),
        # A time ahead of the clock tells nothing of its file system.
        (NOW_S + 0.9, NOW_S, NOW_S, False),
    ],
)
def test_times_of_files_are_compared_as_their_file_system_keeps_them(
    time_s: float, mtime_s: float, changed_s: float, is_same: bool
) -> None:
    ns = round(time_s * 1e9)
    here = ObjectInfo("k", 3, f"{ns}-3-1", time_s)
    there = ObjectInfo("to", 3, "e", mtime_s, stored_unix_s=changed_s)
    found = compare("replace-if-different", Ends("file", "file"), here, there)
    assert (found.replaces, found.question) == (not is_same, None)


def test_a_file_that_was_restored_with_an_older_time_is_looked_at() -> None:
    """Its inode has changed since the copy was written."""
    restored = ObjectInfo("k", 3, "5-3-1", 5e-9, stored_unix_s=NOW_S + 500)
    there = ObjectInfo("to", 3, ONE, NOW_S)
    first = compare("replace-if-different", Ends("file", "s3"), restored, there)
    assert first.question == "destination"


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_with_a_time_in_the_future_is_not_copied_for_ever(kind: str) -> None:
    """Servers that keep objects as files list the times of the files."""
    here = listed(kind, Version(1, NOW_S + 9999, NOW_S + 9999), 1)
    ends = Ends(kind, "s3")
    there, answer = copied(ends, here, 1, NOW_S)
    found, was_asked = verdict(ends, here, there, answer)
    assert (found.replaces, was_asked) == (False, True)


@pytest.mark.parametrize(
    ("answer", "replaces"),
    [
        (ComparisonAnswer(), True),
        (
            ComparisonAnswer(ObjectInfo("k", 3, "e", 0.0, 7), ObjectInfo("to", 3, "f", 0.0, 7)),
            False,
        ),
        (ComparisonAnswer(ObjectInfo("k", 3, "e", 0.0, 7), ObjectInfo("to", 3, "f", 0.0, 8)), True),
        (ComparisonAnswer(ObjectInfo("k", 3, "e", 0.0), ObjectInfo("to", 3, "f", 0.0)), True),
        (
            ComparisonAnswer(ObjectInfo("k", 3, "e2", 0.0, 7), ObjectInfo("to", 3, "f", 0.0, 7)),
            True,
        ),
    ],
)
def test_checksums_that_listings_lack_are_asked_for(
    answer: ComparisonAnswer, replaces: bool
) -> None:
    here, there = ObjectInfo("k", 3, "e", 0.0), ObjectInfo("to", 3, "f", 9e9)
    rule: Any = "replace-if-checksum-differs"
    assert compare(rule, Ends("s3", "azure"), here, there).question == "checksums"
    found = compare(rule, Ends("s3", "azure"), here, there, answer)
    assert (found.replaces, found.question) == (replaces, None)


def test_a_mark_takes_the_place_of_the_one_of_its_source() -> None:
    made = ObjectAttributes(metadata=(("a", "b"), ("skyplanesource", "s3:old")))
    assert marked(made, ("skyplanesource", "gcs:7")).metadata == (
        ("a", "b"),
        ("skyplanesource", "gcs:7"),
    )
    assert marked(made, None).metadata == (("a", "b"),)
    timed = ObjectAttributes(metadata=(("mtime", "5.000000"),))
    assert marked(timed, ("mtime", "7.000000")) == timed
    odd = ObjectAttributes(metadata=(("mtime", "soon"),))
    assert marked(odd, ("mtime", "7.000000")).metadata == (("mtime", "7.000000"),)


def test_metadata_that_fills_an_object_of_s3_gets_no_mark() -> None:
    full = ObjectAttributes(metadata=(("a", "b" * 2040),))
    assert marked(full, ("skyplanesource", "s3:e")) == full


@pytest.mark.parametrize("conflict", ["replace-if-different", "replace-if-newer"])
@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
@pytest.mark.parametrize(
    ("mtime_s", "made_s", "asks"),
    [
        (-1000.0, 1000.0, False),  # a copy, with the time in the metadata of its source
        (-1000.0, MARGIN_S - 1, True),  # too near to the write of its source
        (-1000.0, -500.0, True),  # it was there before its source, and has another owner since
        (-1000.0, None, True),  # the system does not tell
    ],
)
def test_a_file_that_was_copied_later_takes_no_look_at_its_source(
    kind: Any, conflict: Any, mtime_s: float, made_s: float | None, asks: bool
) -> None:
    """Its time is that of the source's metadata, which S3 does not list."""
    source = ObjectInfo("k", 3, "e", NOW_S)
    made_at = None if made_s is None else NOW_S + made_s
    there = ObjectInfo(
        "k", 3, "f", NOW_S + mtime_s, stored_unix_s=NOW_S + 1000, made_unix_s=made_at
    )
    found = compare(conflict, Ends(kind, "file"), source, there)
    assert (found.question == "source", found.replaces) == (asks, asks)


@pytest.mark.parametrize("own_s", [1000.0, 0.5])
def test_a_file_that_was_edited_later_is_no_copy(own_s: float) -> None:
    source = ObjectInfo("k", 3, "e", NOW_S)
    there = ObjectInfo(
        "k", 3, "f", NOW_S + own_s, stored_unix_s=NOW_S + 1000, made_unix_s=NOW_S + 1000
    )
    assert compare("replace-if-different", Ends("s3", "file"), source, there).replaces


@pytest.mark.parametrize("conflict", ["replace-if-different", "replace-if-newer"])
@pytest.mark.parametrize("kind", SHOWING)
@pytest.mark.parametrize(("apart_s", "replaces"), [(0.0, False), (5.0, True)])
def test_a_listing_that_has_the_time_of_a_file_decides(
    kind: Any, conflict: Any, apart_s: float, replaces: bool
) -> None:
    """However near to the write of its source the file was written."""
    own_s = NOW_S - 1000 + apart_s
    source = ObjectInfo("k", 3, "e", NOW_S, made_of=f"mtime:{round(own_s * 1e9)}")
    there = ObjectInfo("k", 3, "f", NOW_S - 1000, stored_unix_s=NOW_S + 1)
    found = compare(conflict, Ends(kind, "file"), source, there)
    assert (found.replaces, found.question) == (replaces, None)


@pytest.mark.parametrize("kept", [True, False])
def test_an_edit_that_checksums_tell_counts_as_one(kept: Any) -> None:
    """Both listings state a CRC32C, and the manifest has a row of the copy."""
    recorded = RecordedCopy("gs://here/", "k", "1", 7, "changed")
    source = ObjectInfo("k", 1, "1", 1.0, crc32c=7)
    there = ObjectInfo("k", 1, "3", 2.0, crc32c=8, recorded=recorded)
    rule = SelectionRule(
        "", "", conflict="replace-if-different", on_edited_copy="keep" if kept else "replace"
    )
    (row,) = select(
        rule,
        lambda _: iter([source]),
        lambda _: iter([there]),
        ends=lambda: Ends("gcs", "gcs", source_name="gs://here/"),
    )
    assert (row.action, row.is_edited) == ("skip" if kept else "copy", True)
