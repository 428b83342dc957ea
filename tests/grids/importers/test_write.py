"""An import is a whole and valid grid, or nothing."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.grids.importers.write import import_grid
from skyplane_orchestration.grids.validate import audit_grid

TABLE = (
    "src_region,src_tier,dst_region,dst_tier,throughput_recieved\n"
    "aws:us-east-1,PREMIUM,gcp:us-east4-a,PREMIUM,4500000000\n"
    "gcp:us-east4-a,PREMIUM,aws:us-east-1,PREMIUM,1234567890\n"
    "gcp:us-east4-a,PREMIUM,aws:us-east-1,PREMIUM,1234567892\n"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "throughput.csv"
    file.write_text(TABLE, encoding="utf-8")
    return file


def test_what_is_written_is_a_grid_that_holds_what_was_read(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours"
    done = import_grid(source, out, as_of="2022-01-29")
    assert sorted(file.name for file in out.iterdir()) == [
        "grid.json",
        "regions.csv",
        "throughput.csv",
    ]
    about = json.loads((out / "grid.json").read_text())
    assert (about["name"], about["as_of"]) == ("ours", "2022-01-29")
    assert about["input"] == {"name": "throughput.csv", "sha256": done.measurements.sha256}
    assert str(tmp_path) not in (out / "grid.json").read_text()
    assert (out / "throughput.csv").read_text() == (
        "src,dst,gbps,samples,as_of\naws:us-east-1,gcp:us-east4,4.5,1,2022-01-29\n"
        "gcp:us-east4,aws:us-east-1,1.234568,2,2022-01-29\n"
    )
    audit = audit_grid(out)
    assert audit.is_valid
    assert audit.warnings == ()
    assert done.grid.regions[0].city == "Ashburn"


def test_an_empty_directory_is_taken(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours"
    out.mkdir()
    assert import_grid(source, out, name="mine").grid.name == "mine"
    assert load_grid(out).as_of == "unknown"


def test_iperf3_results_date_the_grid(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for name, day in (("aws_us-east-1__aws_us-east-2", 0), ("aws_us-east-2__aws_us-east-1", 1)):
        document = {
            "start": {"timestamp": {"timesecs": 1772625600 + day * 86400}},
            "end": {"sum_received": {"bits_per_second": 2e9}},
        }
        (folder / f"{name}.json").write_text(json.dumps(document))
    grid = import_grid(folder, tmp_path / "out").grid
    assert grid.as_of == "2026-03-05"
    assert set(np.unique(grid.edges().dates.rate)) == {"", "2026-03-04", "2026-03-05"}
    assert any("unknown number of connections" in note for note in grid.notes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"as_of": "January"}, "--as-of 'January' is not a date"),
        ({"tier": "GOLD"}, "unknown tier 'GOLD'"),
        ({"latency": Path("none.csv")}, r"there is no 'none\.csv'"),
        ({"tier": "STANDARD"}, "has no row of tier STANDARD"),
    ],
)
def test_a_refused_import_leaves_nothing(
    source: Path, tmp_path: Path, options: dict[str, object], says: str
) -> None:
    with pytest.raises(GridInvalid, match=says):
        import_grid(source, tmp_path / "ours", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [source]


def test_a_result_that_is_no_valid_grid_leaves_nothing(source: Path, tmp_path: Path) -> None:
    source.write_text(TABLE + "aws:mars-1,,aws:us-east-1,,5\n")
    with pytest.raises(GridInvalid, match="aws:mars-1"):
        import_grid(source, tmp_path / "ours")
    assert list(tmp_path.iterdir()) == [source]


def test_nothing_is_ever_written_over(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    with pytest.raises(GridInvalid, match="is not empty"):
        import_grid(source, out)
    with pytest.raises(GridInvalid, match="is a file"):
        import_grid(source, source)
    with pytest.raises(GridInvalid, match="its parent is no directory"):
        import_grid(source, tmp_path / "a" / "b")
    assert [file.name for file in out.iterdir()] == ["mine.txt"]
    assert source.read_text() == TABLE


def test_options_of_a_table_do_not_go_with_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    with pytest.raises(GridInvalid, match="belong to a Skyplane table"):
        import_grid(folder, tmp_path / "out", tier="STANDARD")


def test_the_public_measurement_comes_back_as_it_is(shared_dir: Path, tmp_path: Path) -> None:
    measured = shared_dir / "grids" / "skyplane-2022-01"
    source, trips = tmp_path / "throughput.csv", tmp_path / "latency.csv"
    zone = {"gcp": "-a"}
    with (measured / "throughput.csv").open(encoding="utf-8") as stream, source.open("w") as out:
        out.write("src_region,src_tier,dst_region,dst_tier,throughput_recieved,success\n")
        for row in csv.DictReader(stream):
            ends = [tag + zone.get(tag.partition(":")[0], "") for tag in (row["src"], row["dst"])]
            rate = float(row["gbps"]) * 1e9
            out.write(f"{ends[0]},PREMIUM,{ends[1]},PREMIUM,{rate},True\n")
    with (measured / "latency.csv").open(encoding="utf-8") as stream, trips.open("w") as out:
        out.write("src_region,dst_region,avg_rtt\n")
        out.writelines(
            f"{row['src']},{row['dst']},{row['rtt_ms']}\n" for row in csv.DictReader(stream)
        )
    done = import_grid(source, tmp_path / "grid", latency=trips).grid
    known = load_grid(measured)
    place = [done.index_of(tag) for tag in known.tags]
    rates = done.throughput_gbps[np.ix_(place, place)]
    off = ~np.eye(len(place), dtype=bool)
    assert done.measured.sum() == known.measured.sum() == 63 * 62
    assert np.allclose(rates[off], known.throughput_gbps[off], atol=1e-6)
    assert done.rtt_measured.sum() == known.rtt_measured.sum()
