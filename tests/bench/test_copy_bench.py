"""The bench of copies: what it makes of its rounds, and one small round with real servers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.copy import (
    FLOOR_CPU_MS,
    OWN,
    PARTS,
    RATIOS,
    RCLONE,
    RCLONE_SMALL,
    S5CMD,
    SMALL,
    SMOKE,
    TRUSTED,
    Round,
    Workload,
    cases_of,
    open_bench,
)
from tests.faults import versitygw

QUICK = Round(
    seconds={
        OWN: 4.0,
        RCLONE: 4.0,
        PARTS: 8.0,
        S5CMD: 8.0,
        SMALL: 3.0,
        TRUSTED: 2.0,
        RCLONE_SMALL: 2.0,
    },
    server_cpu_s={OWN: 1.0, RCLONE: 1.5},
    gateway_cpu_ms=1.0,
)
FULL = replace(QUICK, server_cpu_s=dict.fromkeys(QUICK.seconds, 1.0))


def test_ratios_are_those_of_one_round_and_no_load_misses_a_floor() -> None:
    loaded = replace(FULL, seconds={name: 3 * s for name, s in FULL.seconds.items()})
    cases = {case.case: case for case in cases_of([FULL, loaded, loaded], Workload())}
    assert [cases[name].value for name in RATIOS] == [1.0, 0.5, 0.5, 1.5, 1.0]
    assert all(case.holds for case in cases.values())
    assert cases["copy-vs-s5cmd"].against == S5CMD
    assert cases[RCLONE].value == 12.0
    assert cases[f"CPU of both servers: {RCLONE}"].value == 1.0


def test_a_slow_copy_and_a_gateway_that_computes_much_miss_their_floors() -> None:
    slow = replace(FULL, seconds={**FULL.seconds, OWN: 6.1}, gateway_cpu_ms=FLOOR_CPU_MS + 0.1)
    missed = {case.case for case in cases_of([slow], Workload()) if not case.holds}
    assert missed == {"copy-vs-rclone", "gateway-cpu-per-small-object"}


def test_without_the_peers_the_own_figures_are_there() -> None:
    own = dict.fromkeys((OWN, SMALL, TRUSTED), 1.0)
    cases = {case.case for case in cases_of([Round(own, own, 1.0)], Workload())}
    assert "gateway-cpu-per-small-object" in cases
    assert OWN in cases
    assert not cases & set(RATIOS)


def test_a_round_copies_all_objects() -> None:
    try:
        with open_bench(SMOKE, with_peers=False) as bench:
            found = bench.round()
    except versitygw.Unavailable as error:
        pytest.skip(str(error))
    assert set(found.seconds) == {OWN, SMALL, TRUSTED}
    assert found.gateway_cpu_ms > 0
