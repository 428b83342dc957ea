"""An audit names every bad row, and what is hard to believe in a grid without one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.validate import Audit, audit_grid

if TYPE_CHECKING:
    from tests.grids.conftest import WriteGrid

LIMITS = (
    "cloud,instance_type,vcpus,egress_gbps,ingress_gbps,connection_limit,usd_per_hour,"
    "instance_limit\naws,small,2,5,5,64,0.1,4\n"
)


def warnings_of(audit: Audit) -> str:
    assert audit.errors == ()
    return "\n".join(one.message for one in audit.warnings)


def test_a_sound_grid_has_nothing_to_tell(write_grid: WriteGrid) -> None:
    audit = audit_grid(write_grid({}))
    assert audit.is_valid
    assert audit.warnings == ()
    assert audit.grid is not None


def test_every_bad_row_of_every_file_is_named_once(write_grid: WriteGrid) -> None:
    audit = audit_grid(
        write_grid(
            {
                "regions.csv": "region,latitude\naws:us-east-1,91\ngcp:us-east1,\nMoon,\n",
                "throughput.csv": "src,dst,gbps\ngcp:us-east1,x,1\ngcp:us-east1,gcp:us-east1,1\n",
                "latency.csv": "src,dst,rtt_ms\ngcp:us-east1\n",
                "price.csv": "src,dst\n",
                "limits.csv": LIMITS + "moon,x,1,1,1,64,1,1\n",
                "storage.csv": "cloud_or_region_glob,read_gbps,write_gbps\naws,-1,1\n",
                "quotas.csv": "region_glob,vcpus\naws:*,many\n",
                "overrides.csv": "edge,usd_per_gb\naws:*>gcp:*,1\n",
            }
        )
    )
    assert not audit.is_valid
    assert audit.grid is None
    assert [(one.file, one.row) for one in audit.errors] == [
        ("regions.csv", 2),
        ("regions.csv", 4),
        ("limits.csv", 3),
        ("storage.csv", 2),
        ("quotas.csv", 2),
        ("", 0),
        ("latency.csv", 2),
        ("throughput.csv", 2),
        ("throughput.csv", 3),
        ("price.csv", 1),
    ]
    assert "overrides.csv row 2" in audit.errors[5].message
    assert len({one.message for one in audit.errors}) == len(audit.errors)


def test_a_row_that_two_readers_meet_is_told_once(write_grid: WriteGrid) -> None:
    rows = "src,dst,gbps\naws:us-east-1,gcp:us-east1,1\naws:us-east-1\n"
    audit = audit_grid(write_grid({"throughput.csv": rows}))
    assert [one.message for one in audit.errors] == [
        "throughput.csv row 3: the number of fields differs from the header"
    ]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {"limits.csv": LIMITS, "throughput.csv": "src,dst,gbps\naws:us-east-1,gcp:us-east1,6\n"
             "gcp:us-east1,aws:us-east-1,5\n"},
            "1 of 2 pairs: the rate is above what any instance type of the ends can do (aws:us-",
        ),
        (
            {"throughput.csv": "src,dst,gbps\naws:us-east-1,gcp:us-east1,1\n"},
            "1 of 2 pairs: not measured, the rate is modelled (gcp:us-east1 -> aws:us-east-1)",
        ),
        (
            {"throughput.csv": "src,dst,gbps\naws:us-east-1,gcp:us-east1,0\n"
             "gcp:us-east1,aws:us-east-1,5\n"},
            "1 of 2 pairs: the rate is 0",
        ),
        (
            {"latency.csv": "src,dst,rtt_ms\naws:us-east-1,gcp:us-east1,0.5\n"},
            "1 of 2 pairs: the round trip is faster than light in fibre (aws:us-east-1 ->",
        ),
        (
            {"price.csv": "src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,0\n"},
            "1 of 2 pairs: the price is 0 although the cloud is left (aws:us-east-1 ->",
        ),
        (
            {"storage.csv": "cloud_or_region_glob,read_gbps,write_gbps\nazure,1,1\n"},
            "storage.csv: 'azure' matches no region",
        ),
        (
            {"quotas.csv": "region_glob,vcpus\nazure:*,1\n"},
            "quotas.csv: 'azure:*' matches no region",
        ),
        (
            {"regions.csv": "region\naws:us-east-1\ngcp:us-east1\nlocal:here\n"},
            "local:here has no coordinates",
        ),
        (
            {"regions.csv": "region\naws:us-east-1\ngcp:us-east1\naws:sa-west-1\n"},
            "aws:sa-west-1: its price class SAO is a guess",
        ),
    ],
)  # fmt: skip
def test_what_is_hard_to_believe_is_a_warning(
    write_grid: WriteGrid, files: dict[str, str], says: str
) -> None:
    assert says in warnings_of(audit_grid(write_grid(files)))


def test_an_agreed_price_of_nothing_and_an_asymmetry_are_fine(write_grid: WriteGrid) -> None:
    rows = "src,dst,gbps\naws:us-east-1,gcp:us-east1,0.5\ngcp:us-east1,aws:us-east-1,5\n"
    agreed = "edge,usd_per_gb\naws:*>gcp:*,0\n"
    audit = audit_grid(write_grid({"throughput.csv": rows, "overrides.csv": agreed}))
    assert warnings_of(audit) == ""


def test_the_shipped_files_and_the_measured_grid_have_no_bad_row(
    repository: Path, shared_dir: Path
) -> None:
    assert audit_grid(repository / "grids" / "skyplane_grids").is_valid
    told = warnings_of(audit_grid(shared_dir / "grids" / "skyplane-2022-01"))
    assert "10 of 3906 pairs: the round trip is faster than light" in told


def test_there_is_nothing_to_audit_where_there_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(GridInvalid, match="no grid"):
        audit_grid(tmp_path / "none")
