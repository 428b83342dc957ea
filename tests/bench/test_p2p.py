"""The figures of the point-to-point bench."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.p2p import JUDGED, SETTINGS, SIZES_MIB, Round, Sent, case_of
from bench.wan.network import Unavailable, opened


def test_no_figure_of_the_table_is_below_the_time_of_the_wire() -> None:
    """So the messages are of MiB. Its clock is the receiver's, which does not see the delay."""
    for row in SETTINGS:
        for mib in SIZES_MIB:
            assert row.nccl_ms[mib] / 1e3 > row.wire_s(mib) - row.delay_ms / 1e3


def test_a_message_of_64_mib_takes_a_wire_of_1_gbps_over_half_a_second() -> None:
    by_name = {row.name: row for row in SETTINGS}
    assert by_name["10 ms, 1 Gbit/s"].wire_s(64) == pytest.approx(0.5469, abs=1e-4)


def test_only_the_judged_row_has_a_floor() -> None:
    rounds = [Round(0.5, Sent(seconds, 0.9)) for seconds in (0.5, 0.55, 0.6)]
    cases = [case_of(row, mib, rounds) for row in SETTINGS for mib in SIZES_MIB]
    [judged] = [case for case in cases if case.floor is not None]
    assert judged.value == pytest.approx(1.1)
    assert (judged.case, judged.unit) == ("p2p", "x time")
    assert judged.seconds is not None
    assert judged.seconds["NCCL"] == 0.543
    assert JUDGED == ("10 ms, 1 Gbit/s", 64)


def test_the_bench_runs() -> None:
    try:
        with opened(("one", "other")):
            pass
    except Unavailable as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "bench.p2p", "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "p2p" in done.stdout
