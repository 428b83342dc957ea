from __future__ import annotations

import pytest

from skyplane_orchestration.wording import duration, rate, size, volume


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (1.25, "1.2 s"), (61, "1 min 1 s"), (7320, "2 h 2 min")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("gb", "text"),
    [
        (5e4, "50 TB"),
        (70.0, "70 GB"),
        (999.9, "999.9 GB"),
        (1234.5678, "1.235 TB"),
        (2.5e6, "2.5 PB"),
        (0.25, "250 MB"),
        (1.5e-6, "1.5 kB"),
        (3e-9, "3 B"),
    ],
)
def test_a_volume_has_the_unit_that_fits(gb: float, text: str) -> None:
    assert volume(gb) == text


@pytest.mark.parametrize(
    ("gbps", "text"), [(4.236, "4.24"), (0.104, "0.10"), (0.0042, "0.0042"), (0.01, "0.01")]
)
def test_no_rate_is_shown_as_nothing(gbps: float, text: str) -> None:
    assert rate(gbps) == text
