"""Sizes, durations and times as users write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.quantities import duration_s, size_bytes, size_text, unix_s

NOW = 1e9


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0B", 0),
        ("7b", 7),
        ("10K", 10_240),
        ("10k", 10_240),
        ("10KiB", 10_240),
        ("10Ki", 10_240),
        ("1.5M", 3 << 19),
        ("2G", 2 << 30),
        ("1T", 1 << 40),
        ("1P", 1 << 50),
    ],
)
def test_sizes(text: str, wanted: int) -> None:
    assert size_bytes("min_size", text) == wanted


@pytest.mark.parametrize(
    "text", ["", "10", "K", "-1K", "10KB", "10 K", "1e3K", ".5K", "nanK", "1,5K"]
)
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="min_size must be a number with one of the un"):
        size_bytes("min_size", text)


@given(st.integers(0, 1 << 55))
@settings(deadline=None)
def test_a_size_and_its_text(amount_bytes: int) -> None:
    text = size_text(amount_bytes)
    if len(text.rstrip("BKMGTP")) <= 15:  # What a float holds exactly.
        assert size_bytes("x", text) == amount_bytes


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("90s", 90), ("1.5m", 90), ("24h", 86_400), ("7d", 604_800), ("2w", 1_209_600), ("0s", 0)],
)
def test_durations(text: str, wanted: float) -> None:
    assert duration_s(text) == wanted
    assert unix_s("newer_than", text, NOW) == NOW - wanted


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from("smhdw")), min_size=1))
@settings(deadline=None)
def test_the_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    texts = [f"{number}{unit}" for number, unit in parts]
    assert duration_s("".join(texts)) == sum(duration_s(text) or 0 for text in texts)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(-720, 720))
@settings(deadline=None)
def test_a_time_with_its_zone(naive: datetime, offset_minutes: int) -> None:
    time = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))
    assert unix_s("newer_than", time.isoformat(), NOW) == time.timestamp()


def test_a_date_is_its_midnight_in_utc() -> None:
    wanted = datetime(2026, 1, 31, tzinfo=UTC).timestamp()
    assert unix_s("newer_than", "2026-01-31", NOW) == wanted
    assert unix_s("newer_than", "2026-01-31T00:00:00Z", NOW) == wanted


@pytest.mark.parametrize(
    "text", ["", "24", "24 h", "-1h", "1y", "h", "2026-01-31T06:00:00", "2026-13-01", "tomorrow"]
)
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="newer_than must be a duration such as 24h"):
        unix_s("newer_than", text, NOW)
