"""Modification times in the forms that rclone writes, and back."""

from __future__ import annotations

import pytest

from skyplane_gateway.common.mtime import dated, mtime_ns_of, undated, with_mtime
from skyplane_gateway.common.objects import ObjectAttributes


@pytest.mark.parametrize(
    ("mtime_ns", "seconds", "date"),
    [
        (1_700_000_000_123_456_789, "1700000000.123456789", "2023-11-14T22:13:20.123456789Z"),
        (1_700_000_000_500_000_000, "1700000000.5", "2023-11-14T22:13:20.5Z"),
        (1_700_000_000_000_000_000, "1700000000", "2023-11-14T22:13:20Z"),
        (0, "0", "1970-01-01T00:00:00Z"),
        (-1_500_000_000, "-1.5", "1969-12-31T23:59:58.5Z"),
        (5, "0.000000005", "1970-01-01T00:00:00.000000005Z"),
    ],
)
def test_a_time_has_one_text_for_s3_and_one_for_the_others(
    mtime_ns: int, seconds: str, date: str
) -> None:
    made = with_mtime(ObjectAttributes(metadata=(("a", "b"),)), mtime_ns)
    assert made.metadata == (("a", "b"), ("mtime", seconds))
    assert mtime_ns_of(made) == mtime_ns
    assert dated(made.metadata) == {"a": "b", "mtime": date}
    assert undated(dated(made.metadata).items()) == made.metadata


def test_times_of_other_programs_are_read() -> None:
    assert undated([("mtime", "2023-11-15T00:13:20.500+02:00")]) == (("mtime", "1700000000.5"),)
    found = ObjectAttributes(metadata=(("mtime", "1700000000.50"),))
    assert mtime_ns_of(found) == 1_700_000_000_500_000_000


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "1700000000.50", "00", "99999999999999", "999999999999", "1e9", "\u0661"],
)
def test_what_is_no_time_in_our_form_is_kept(text: str) -> None:
    assert dated([("mtime", text)]) == {"mtime": text}


@pytest.mark.parametrize("text", ["1700000000", "2023-13-14T22:13:20Z", "2023-11-14", "x"])
def test_what_is_no_date_is_kept(text: str) -> None:
    assert undated([("mtime", text)]) == (("mtime", text),)


def test_a_time_that_is_there_stays() -> None:
    found = ObjectAttributes(metadata=(("mtime", "5"),))
    assert with_mtime(found, 7) == found
    assert mtime_ns_of(ObjectAttributes()) is None
    assert mtime_ns_of(None) is None
