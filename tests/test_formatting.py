from __future__ import annotations

import pytest

from skyplane_orchestration.formatting import (
    counted,
    duration,
    rate,
    size,
    throughput,
    usd,
    volume,
)


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


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 gateways"), (1, "1 gateway"), (2, "2 gateways")]
)
def test_a_noun_has_an_s_unless_there_is_one(count: int, text: str) -> None:
    assert counted(count, "gateway") == text


@pytest.mark.parametrize(
    ("gbps", "text"),
    [
        (5, "5.00 Gbit/s"),
        (0.1, "0.10 Gbit/s"),
        (0.0132, "13.20 Mbit/s"),
        (5.6e-7, "0.56 kbit/s"),
        (2e-8, "20 bit/s"),
    ],
)
def test_a_slow_throughput_has_a_smaller_unit(gbps: float, text: str) -> None:
    assert throughput(gbps) == text


def test_what_is_not_zero_is_not_shown_as_zero() -> None:
    assert (duration(0.04), duration(0.0), duration(0.06)) == ("<0.1 s", "0.0 s", "0.1 s")
    assert (usd(0.00001), usd(0.0), usd(0.00006)) == ("<$0.0001", "$0.0000", "$0.0001")
