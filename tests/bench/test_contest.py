"""What the benches of copies make of their rounds, and one small round with real servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from bench import latency, rerun, small
from bench.contest import Contest, Round, cases_of, options_of
from bench.places import SOURCE, Places, Unavailable, open_places

CONTEST = Contest("case", "ours", "theirs", 1.5, 1.0)
QUICK = Round({"ours": 3.0, "theirs": 2.0}, {"ours": 0.5, "theirs": 1.0})


def test_a_ratio_is_that_of_one_round_so_load_misses_no_floor() -> None:
    loaded = replace(QUICK, seconds={"ours": 9.0, "theirs": 6.0})
    [case] = cases_of([CONTEST], [QUICK, loaded, loaded])
    assert (case.case, case.value, case.against) == ("case", 1.5, "theirs")
    assert (case.floor, case.goal, case.holds) == (1.5, 1.0, True)
    assert case.seconds == {"ours": 9.0, "theirs": 6.0}
    assert case.server_cpu_s == {"ours": 0.5, "theirs": 1.0}


def test_a_slow_command_misses_its_floor_but_not_on_an_emulator() -> None:
    slow = replace(QUICK, seconds={"ours": 3.1, "theirs": 2.0})
    assert [case.holds for case in cases_of([CONTEST], [slow])] == [False]
    [case] = cases_of([CONTEST], [slow], store="gcs")
    assert (case.case, case.floor, case.holds) == ("case-gcs", None, True)


def test_without_the_peer_there_is_no_case() -> None:
    assert cases_of([CONTEST], [replace(QUICK, seconds={"ours": 1.0})]) == []


@pytest.fixture
def places() -> Iterator[Places]:
    try:
        with open_places("s3") as opened:
            yield opened
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.long
def test_a_round_copies_all_objects(places: Places) -> None:
    places.fill(0, iter([("one", b"x"), *small.bodies_of("small", 5)]))
    assert len(list((places.folder / SOURCE / SOURCE).rglob("*/*"))) == 5
    bench = small.Bench(places, None, small=5)
    found = bench.round()
    assert set(found.seconds) == {small.ONE, small.OWN, small.TRUSTED}
    assert found.server_cpu_s.keys() == found.seconds.keys()
    assert bench.gateway_cpu_ms() > 0


@pytest.mark.long
def test_of_two_peers_the_better_one_counts() -> None:
    try:
        cases, rounds = latency.measure(options_of(None, ["--smoke", "--only", "latency-one"]))
    except Unavailable as error:
        pytest.skip(str(error))
    assert rounds == 1
    for case in cases:  # None without rclone.
        assert (case.case, case.against) == ("latency-one", latency.BETTER)
        assert case.seconds is not None
        assert case.seconds["cp of one"] > latency.LATE_MS / 1000


@pytest.mark.long
def test_a_round_with_nothing_to_do(places: Places) -> None:
    for end in (0, 1):
        places.fill(end, rerun.bodies_of("many", 3))
    [found] = rerun.rounds_of(places, 1, "many", None)
    assert set(found.seconds) == {rerun.OWN}
