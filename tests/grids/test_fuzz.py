"""Whatever stands in a file: a grid, or an error of the tree; and an audit agrees."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.grids.price_overrides import read_overrides
from skyplane_orchestration.grids.validate import audit_grid

HEADERS = {
    "regions.csv": "region,latitude,longitude",
    "throughput.csv": "src,dst,gbps,samples,as_of",
    "latency.csv": "src,dst,rtt_ms",
    "price.csv": "src,dst,usd_per_gb",
    "storage.csv": "cloud_or_region_glob,read_gbps,write_gbps",
    "quotas.csv": "region_glob,vcpus",
    "overrides.csv": "edge,usd_per_gb,usd_per_gib",
}
TAGS = ("aws:us-east-1", "gcp:us-east1", "aws:x", "local:a", "moon", "aws:*>gcp:*", "*>*")
NUMBERS = ("0", "1.5", "-1", "nan", "1e400", "2026-01-01")
CELLS = st.sampled_from((*TAGS, *NUMBERS, "", '"', "\n", "\0", "é"))
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def directories(draw: st.DrawFn) -> dict[str, str]:
    files = {}
    for name in draw(st.lists(st.sampled_from(sorted(HEADERS)), unique=True, max_size=4)):
        rows = draw(st.lists(st.lists(CELLS, min_size=1, max_size=5).map(",".join), max_size=4))
        header = draw(st.sampled_from([HEADERS[name], HEADERS[name], "", "src"]))
        files[name] = "\n".join([header, *rows])
    return files


@quick
@given(directories())
@example({"throughput.csv": "src,dst,gbps\naws:us-east-1,gcp:us-east1,4\n"})
def test_a_directory_loads_exactly_when_its_audit_finds_no_error(files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        audit = audit_grid(Path(folder))
        if audit.is_valid:
            grid = load_grid(folder)
            assert (grid.throughput_gbps[~grid.measured] >= 0).all()
            assert (grid.usd_per_gb >= 0).all()
            return
        with pytest.raises(GridInvalid) as raised:
            load_grid(folder)
    assert raised.value.message in [one.message for one in audit.errors]


@quick
@given(st.text(st.sampled_from("- {}[]:,>*ab1.\n\"'&!e"), max_size=40))
def test_any_text_is_overrides_or_an_error_of_the_tree(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.yaml"
        file.write_text(text, encoding="utf-8")
        with suppress(GridInvalid):
            assert all(one.usd_per_gb >= 0 for one in read_overrides(file))
