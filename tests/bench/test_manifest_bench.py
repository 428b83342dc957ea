"""What `bench.manifest` and `bench.files` make of their rounds, and small rounds on a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import artiv, files, manifest, million
from bench.contest import Round, options_of
from bench.places import SOURCE, TARGET, Places, Unavailable, open_places


def ran(**seconds: float) -> Round:
    return Round(seconds, dict.fromkeys(seconds, 0.1))


def test_rows_are_named_and_others_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert options_of(None, [], manifest.ROWS).rows == list(manifest.ROWS)
    assert options_of(None, ["--rows", "artiv,commit"], manifest.ROWS).rows == ["artiv", "commit"]
    with pytest.raises(SystemExit):
        options_of(None, ["--rows", "artiv,none"], manifest.ROWS)
    assert "there is no row none" in capsys.readouterr().err


def test_second_runs_have_a_floor_and_the_worst_row_counts() -> None:
    rows = {
        "small-up-first": ran(sync=9.0, rclone=1.0, dvc=1.0),
        "small-up-second": ran(sync=1.0, rclone=2.0, dvc=0.5),
        "small-down-second": ran(sync=3.0, rclone=2.0, dvc=6.0),
        "differ-1-50000": ran(sync=4.0, rclone=8.0, dvc=1.0),
    }
    cases = {case.case: case for case in artiv.cases_of_rows([rows])}
    assert cases["artiv-small-up-first"].floor is None
    assert cases["artiv-small-up-second"].holds
    assert cases["artiv-small-up-second"].seconds == {"sync": 1.0, "rclone": 2.0, "dvc": 0.5}
    assert not cases["artiv-small-down-second"].holds
    assert (cases["artiv"].value, cases["artiv"].holds) == (1.5, False)
    assert (cases["artiv-fastest"].value, cases["artiv-fastest"].floor) == (4.0, None)


def test_without_peers_artiv_has_no_case() -> None:
    assert artiv.cases_of_rows([{"small-up-second": ran(sync=1.0)}]) == []


def test_a_commit_is_the_difference_of_medians() -> None:
    rounds = [Round({artiv.OWN: a, manifest.WITHOUT: 1.0}) for a in (1.1, 1.2, 9.0)]
    case = manifest.commit_case(rounds)
    assert (case.case, case.unit, case.holds) == ("commit", "s", True)
    assert case.value == pytest.approx(0.2)


def test_the_faster_listing_is_the_peer() -> None:
    row = ran(**{manifest.OWN_LISTING: 2.0, manifest.RCLONE_LISTING: 3.0})
    row.add_better(manifest.LISTING, manifest.OWN_LISTING, manifest.RCLONE_LISTING)
    assert row.seconds[manifest.LISTING] == 2.0


def test_a_listing_that_is_made_up_is_in_order() -> None:
    rows = list(million.made_up("copy/", 2001))
    assert [row.key for row in rows] == sorted({row.key for row in rows})
    assert len({row.etag for row in rows}) == 2001


def test_a_comparison_by_a_manifest_copies_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in ("commit", "compare"):
        million.print_step(step, str(tmp_path), 100)
        assert json.loads(capsys.readouterr().out).keys() == {"mib", "seconds"}
    with pytest.raises(AssertionError, match="1 objects are not in the manifest"):
        million.compare_million(tmp_path, 101)


def test_figures_of_a_mount_are_beside_those_of_the_disk() -> None:
    rounds: list[files.Figures] = [
        {"read": {"mount": value, "disk": 100.0}, "write-stored": {"mount": 1.0}}
        for value in (10.0, 30.0, 50.0)
    ]
    read, disk, stored = files.cases_of_figures(rounds)
    assert (read.case, read.value, read.ratio) == ("files-read-mount", 30.0, 0.3)
    assert (read.against, read.floor, read.unit) == ("disk", None, "MB/s")
    assert (disk.ratio, stored.ratio, stored.against) == (None, None, None)


def test_rates_of_fio() -> None:
    answer = {"jobs": [{"read": {"bw_bytes": 2_500_000, "iops": 38.1}}]}
    assert files.rates_of(answer, "read") == (2.5, 38.1)
    assert "--rw=read" in files.fio("read", Path("/x"), files.SMOKE)


@pytest.fixture
def places() -> Iterator[Places]:
    try:
        with open_places("s3") as opened:
            yield opened
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.long
def test_rounds_without_peers(places: Places) -> None:
    [exact] = manifest.many_rounds(places, 1, [manifest.EXACT.case], 5, None)
    assert set(exact.seconds) == {artiv.OWN}
    assert len(list((places.folder / SOURCE / SOURCE / "many").iterdir())) == 5
    [download] = manifest.download_rounds(places, 1, 5, None)
    assert 0 < download.seconds[artiv.OWN] < 10


@pytest.mark.long
def test_rounds_of_artiv_without_peers(places: Places) -> None:
    programs = artiv.Programs(places, {})
    programs.fill(5, 100)
    [rows] = programs.copy_rounds("small", 1)
    assert len(rows) == 4
    assert not list((places.folder / TARGET / TARGET).glob("small*"))
    programs.fill_target()
    [differences] = programs.difference_rounds(1, 2, 5)
    assert set(differences["differ-2-5"].seconds) == {artiv.OWN, artiv.TRUSTING}
