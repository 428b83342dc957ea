"""What the bench of the long line makes of its rounds; the line itself is no business of a test."""

from __future__ import annotations

import pytest
from bench.long_line import LINE_BYTES_PER_S, MANY, RTT_S, WINDOW_BYTES, Round, cases_of

PLAIN = {MANY: 0.96 * LINE_BYTES_PER_S, 1: 0.15 * LINE_BYTES_PER_S}


def round_of(share: float) -> Round:
    """Gateways that fill so much of the line, by one connection an eighth of that."""
    filled = share * LINE_BYTES_PER_S
    return Round(PLAIN, {MANY: filled, 1: filled / 8})


def test_figures_are_medians_and_ratios_are_to_plain_sockets() -> None:
    cases = cases_of([round_of(0.48), round_of(0.9), round_of(0.96)])
    line, plain, scaled, one = cases
    assert (line.value, line.ratio) == pytest.approx((0.9, 0.9 / 0.96))
    assert line.spread == pytest.approx(0.48 / 0.9)
    assert plain.value == pytest.approx(0.9 / 0.96)
    assert (scaled.value, scaled.ratio) == pytest.approx((8.0, 8.0 / 6.4))
    assert one.value == pytest.approx(0.9 / 8 * LINE_BYTES_PER_S * RTT_S / WINDOW_BYTES)
    assert all(case.holds for case in cases)
