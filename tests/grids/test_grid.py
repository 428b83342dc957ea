"""Optional files: storage limits, quotas, dates and samples of measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import load_grid

if TYPE_CHECKING:
    from tests.grids.conftest import WriteGrid

STORAGE = "cloud_or_region_glob,read_gbps,write_gbps\naws:us-*,10,4\ngcp,,8\naws,20,\n"
LIMITS = (
    "cloud,instance_type,vcpus,egress_gbps,ingress_gbps,connection_limit,usd_per_hour,"
    "instance_limit\n"
)


def test_the_first_row_of_storage_that_matches_holds(write_grid: WriteGrid) -> None:
    grid = load_grid(write_grid({"storage.csv": STORAGE}))
    assert grid.storage_limits("aws:us-east-1") == (10.0, 4.0)
    assert grid.storage_limits("aws:eu-west-1") == (20.0, None)
    assert grid.storage_limits("gcp:us-east1") == (None, 8.0)
    assert grid.storage_limits("azure:eastus") == (None, None)


def test_a_quota_is_of_a_region_and_unknown_where_nobody_gives_one(write_grid: WriteGrid) -> None:
    rows = "region_glob,vcpus,as_of\naws:us-east-1,64,2026-01-01\naws:*,5,2026-01-01\n"
    grid = load_grid(write_grid({"quotas.csv": rows}))
    assert grid.vcpu_quota("aws:us-east-1") == 64
    assert grid.vcpu_quota("aws:eu-west-1") == 5
    assert grid.vcpu_quota("gcp:us-east1") is None


def test_the_shipped_grid_limits_neither_buckets_nor_accounts() -> None:
    grid = load_grid()
    assert {grid.storage_limits(tag) for tag in grid.tags} == {(None, None)}
    assert {grid.vcpu_quota(tag) for tag in grid.tags} == {None}


def test_samples_and_dates_of_a_table_are_kept(write_grid: WriteGrid) -> None:
    rows = "src,dst,gbps,samples,as_of\naws:us-east-1,gcp:us-east1,4,3,2026-02-03\n"
    grid = load_grid(write_grid({"throughput.csv": rows}))
    dates = grid.edges().dates
    assert (dates.samples[0, 1], dates.rate[0, 1]) == (3, "2026-02-03")
    assert (dates.samples[1, 0], dates.rate[1, 0]) == (0, "")


def test_a_type_says_whose_row_it_is(write_grid: WriteGrid) -> None:
    own = LIMITS + "aws,tiny,2,1,1,64,0.1,4\n"
    grid = load_grid(write_grid({"limits.csv": own}))
    assert grid.instance_type("aws").provenance == "table"
    assert grid.instance_type("gcp").provenance == "shipped"
    assert grid.instance_type("gcp").as_of == "2026-11-20"
    assert all(kind.source for kind in load_grid().types)


def test_a_file_that_is_no_text_is_refused(write_grid: WriteGrid) -> None:
    directory = write_grid({})
    (directory / "throughput.csv").write_bytes(b"src,dst,gbps\n\xff\xfe,1,2\n")
    with pytest.raises(GridInvalid, match=r"throughput\.csv is not UTF-8 text \(byte 13\)"):
        load_grid(directory)


def test_a_byte_order_mark_is_no_part_of_the_header(write_grid: WriteGrid) -> None:
    directory = write_grid({})
    file = directory / "throughput.csv"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_grid(directory).measured.sum() == 2
