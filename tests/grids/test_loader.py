from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from skyplane_orchestration.errors import GridInvalid, UnknownRegion
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.distances import pairwise_distance_km
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.price_rules import billed_by
from skyplane_orchestration.grids.validate import audit_grid
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

if TYPE_CHECKING:
    from tests.grids.conftest import WriteGrid


@pytest.fixture(scope="session")
def measured(shared_dir: Path) -> Path:
    """The public measurement of January 2022, over 63 regions."""
    return shared_dir / "grids" / "skyplane-2022-01"


@pytest.fixture(scope="module")
def shipped() -> Grid:
    return load_grid()


# ---------------------------------------------------------------- the shipped grid


def test_the_shipped_grid_knows_136_regions(shipped: Grid) -> None:
    assert Counter(region.cloud for region in shipped.regions) == {
        "aws": 36,
        "gcp": 43,
        "azure": 57,
    }
    assert load_grid("shipped") is shipped


def test_every_shipped_edge_has_a_rate_and_a_price_and_neither_was_measured(shipped: Grid) -> None:
    off_diagonal = ~np.eye(len(shipped.regions), dtype=bool)
    assert (shipped.throughput_gbps[off_diagonal] > 0).all()
    assert (shipped.usd_per_gb[off_diagonal] > 0).all()
    assert (shipped.rtt_ms[off_diagonal] > 0).all()
    assert not shipped.measured.any()
    assert set(np.unique(shipped.price_source)) == {"rules"}


def test_a_modelled_rate_is_no_less_than_what_default_instances_can_use(shipped: Grid) -> None:
    """The types at both ends limit a plan, so a larger one may use the rest of the rate."""
    edge = shipped.index_of("azure:uksouth"), shipped.index_of("aws:eu-west-2")
    assert shipped.throughput_gbps[edge] > shipped.instance_type("aws").ingress_gbps


def test_bytes_that_leave_for_this_machine_pay_the_internet_and_those_that_come_pay_nothing(
    shipped: Grid,
) -> None:
    assert shipped.egress_price("aws:us-east-1", "local:here") == pytest.approx(
        usd_per_gib_to_usd_per_gb(0.09)
    )
    assert shipped.egress_price("local:here", "aws:us-east-1") == 0


def test_the_arrays_cannot_be_written_to(shipped: Grid) -> None:
    with pytest.raises(ValueError, match="read-only"):
        shipped.usd_per_gb[0, 1] = 0.0


def test_an_unknown_region_is_refused_with_the_nearest_names(shipped: Grid) -> None:
    with pytest.raises(UnknownRegion, match=r"did you mean aws:us-east-1"):
        shipped.index_of("aws:us-east1")


def test_an_unknown_instance_type_is_refused_with_those_there_are(shipped: Grid) -> None:
    assert shipped.instance_type("aws").name == "c6in.xlarge"
    assert shipped.instance_type("aws", "m5.8xlarge").vcpus == 32
    with pytest.raises(GridInvalid, match=r"c6in\.xlarge"):
        shipped.instance_type("aws", "m5.nano")


# ---------------------------------------------------------------- against measurements


def test_the_measured_grid_is_taken_as_it_is(measured: Path) -> None:
    grid = load_grid(measured)
    edge = grid.index_of("aws:af-south-1"), grid.index_of("aws:ap-east-1")
    assert (grid.name, grid.as_of, len(grid.regions)) == ("skyplane-2022-01", "2022-01-29", 63)
    assert grid.throughput_gbps[edge] == 2.566
    assert grid.usd_per_gb[edge] == 0.147
    assert grid.price_source[edge] == "table"
    assert grid.measured.sum() == 63 * 62
    assert grid.instance_type("gcp").name == "n2-standard-32"


def test_the_rules_reproduce_every_published_price_of_aws(shipped: Grid, measured: Path) -> None:
    with (measured / "price.csv").open(encoding="utf-8") as stream:
        published = [row for row in csv.DictReader(stream) if row["src"].startswith("aws:")]
    wrong = [
        row
        for row in published
        if not math.isclose(
            billed_by(
                shipped.price_document["clouds"]["aws"],
                shipped.regions[shipped.index_of(row["src"])],
                shipped.regions[shipped.index_of(row["dst"])],
            ).usd,
            float(row["usd_per_gb"]),
        )
    ]
    assert len(published) == 1302
    assert wrong == []


def test_the_model_is_within_a_tenth_of_half_the_measurements(
    shipped: Grid, measured: Path
) -> None:
    grid = load_grid(measured)
    place = [shipped.index_of(tag) for tag in grid.tags]
    modelled = shipped.throughput_gbps[np.ix_(place, place)]
    caps = np.array([shipped.instance_type(region.cloud).egress_gbps for region in grid.regions])
    real = np.minimum(grid.throughput_gbps, caps[:, None])
    off_diagonal = ~np.eye(len(place), dtype=bool)
    error = np.abs(modelled / real - 1.0)[off_diagonal]
    assert np.median(error) < 0.1


# ---------------------------------------------------------------- completion


def test_what_is_missing_is_completed_and_marked(write_grid: WriteGrid) -> None:
    files = {
        "regions.csv": "region\naws:us-east-1\ngcp:us-east1\nazure:eastus\n",
        "price.csv": "src,dst,usd_per_gb\naws:us-east-1,gcp:us-east1,0.5\n",
        "grid.json": json.dumps({"name": "mine", "as_of": "2026-01-01", "notes": "one"}),
    }
    grid = load_grid(write_grid(files))
    aws, gcp, azure = (grid.index_of(tag) for tag in grid.tags)
    assert (grid.name, grid.as_of, grid.notes) == ("mine", "2026-01-01", ("one",))
    assert grid.throughput_gbps[aws, gcp] == 4.5
    assert grid.measured[aws, gcp]
    assert grid.throughput_gbps[aws, azure] > 0
    assert not grid.measured[aws, azure]
    assert grid.usd_per_gb[aws, gcp] == 0.5
    assert grid.price_source[aws, gcp] == "table"
    assert grid.usd_per_gb[gcp, aws] == pytest.approx(usd_per_gib_to_usd_per_gb(0.12))
    assert grid.price_source[gcp, aws] == "rules"
    assert grid.regions[azure].country == "US"
    assert grid.rtt_ms[aws, gcp] > 0
    assert not grid.rtt_measured.any()


def test_a_rate_of_zero_is_a_measurement_that_there_is_no_such_edge(write_grid: WriteGrid) -> None:
    rows = "src,dst,gbps\naws:us-east-1,gcp:us-east1,0\ngcp:us-east1,aws:us-east-1,6\n"
    grid = load_grid(write_grid({"throughput.csv": rows}))
    assert grid.throughput_gbps[0, 1] == 0
    assert grid.measured[0, 1]


def test_a_region_that_nobody_knows_needs_prices_and_limits_and_then_is_fine(
    write_grid: WriteGrid,
) -> None:
    files = {"throughput.csv": "src,dst,gbps\nlocal:a,local:b,2\nlocal:b,local:a,2\n"}
    grid = load_grid(write_grid(files))
    assert grid.usd_per_gb[0, 1] == 0
    unknown = {"throughput.csv": "src,dst,gbps\naws:mars-1,aws:us-east-1,2\n"}
    with pytest.raises(GridInvalid, match=r"aws:mars-1.*price\.csv"):
        load_grid(write_grid(unknown))


def test_distance_is_great_circle() -> None:
    quarter = [GridRegion("aws:a", latitude=0, longitude=0), GridRegion("aws:b", latitude=90)]
    quarter[1] = GridRegion("aws:b", latitude=90, longitude=45)
    distance = pairwise_distance_km(quarter)
    assert distance[0, 1] == pytest.approx(10007.5, rel=1e-3)
    assert distance[0, 0] == 0


def test_the_shipped_speed_of_gateways_is_that_of_the_bench(shipped: Grid) -> None:
    file = Path(__file__).parents[2] / "docs" / "performance" / "gateway_speed.json"
    run = json.loads(file.read_text(encoding="utf-8"))
    rates = {row["case"]: float(f"{row['value']:.2g}") for row in run["results"]}
    for kind in shipped.types:
        assert kind.speed is not None
        ends = ", files" if kind.cloud == "local" else ""
        for role in ("source", "relay", "sink"):
            assert getattr(kind.speed, f"{role}_gbps") == rates[role + ends]
        assert kind.speed.measured_on.startswith(run["machine"].partition(",")[0])
        assert run["commit"] in kind.speed.measured_on
        assert kind.speed.as_of


# ---------------------------------------------------------------- refusal


EDGE = "aws:us-east-1,gcp:us-east1"
LIMITS = (
    "cloud,instance_type,vcpus,egress_gbps,ingress_gbps,connection_limit,usd_per_hour,"
    "instance_limit\n"
)
SPEEDS = LIMITS.replace("\n", ",source_gbps_per_vcpu,relay_gbps_per_vcpu,sink_gbps_per_vcpu\n")
BURSTS = LIMITS.replace("\n", ",burst_ingress_gbps,burst_s\n")
STORAGE = "cloud_or_region_glob,read_gbps,write_gbps\n"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("throughput.csv", f"src,dst\n{EDGE}\n", "row 1: .*gbps"),
        ("throughput.csv", f"src,dst,gbps\n{EDGE},4\nmoon,gcp:us-east1,4\n", "row 3: .*'moon'"),
        ("throughput.csv", f"src,dst,gbps\n{EDGE},-4\n", "row 2: gbps is '-4'"),
        ("throughput.csv", f"src,dst,gbps\n{EDGE},nan\n", "row 2: gbps is 'nan'"),
        ("throughput.csv", f"src,dst,gbps\n{EDGE},1_0\n", "row 2: gbps"),
        ("throughput.csv", f"src,dst,gbps\n{EDGE}\n", "row 2: the number of fields"),
        ("throughput.csv", f"src,dst,gbps\n{EDGE},4,5\n", "row 2: the number of fields"),
        ("throughput.csv", "src,dst,gbps\naws:us-east-1,aws:us-east-1,4\n", "row 2: .* both"),
        ("throughput.csv", f"src,dst,gbps\n{EDGE},4\n{EDGE},4\n", "row 3: .* twice"),
        ("throughput.csv", f"src,dst,gbps,samples\n{EDGE},4,0\n", "row 2: samples"),
        (
            "throughput.csv",
            f"src,dst,gbps,as_of\n{EDGE},4,2026-13-01\n",
            "row 2: as_of is '2026",
        ),
        ("throughput.csv", "src,dst,gbps,gbps\n", "row 1: the header has 'gbps' twice"),
        ("throughput.csv", 'src,dst,gbps\n"aws:us-east-1,gcp:us-east1,1\n', "is not CSV"),
        ("throughput.csv", "src,dst,gbps\n", "the grid has no region"),
        ("price.csv", "src,dst,usd_per_gb\naws:us-east-1,aws:eu-west-1,1\n", r"price\.csv row 2"),
        ("latency.csv", f"src,dst,rtt_ms\n{EDGE},x\n", r"latency\.csv row 2"),
        ("regions.csv", "region,latitude\naws:us-east-1,91\n", r"regions\.csv row 2: latitude"),
        ("regions.csv", "region\naws:us-east-1\naws:us-east-1\n", r"regions\.csv row 3: .* twice"),
        ("regions.csv", "region\nUS East\n", r"regions\.csv row 2: 'US East'"),
        ("instance_prices.csv", "region,ratio\naws:us-east-1,x\n", "row 2: ratio"),
        ("instance_prices.csv", "region,ratio\naws:us-east-1,0\n", "row 2: ratio is 0"),
        ("instance_prices.csv", "region,ratio\n" + 2 * "aws:us-east-1,1\n", "row 3: .* twice"),
        ("limits.csv", SPEEDS + "aws,x,1,1,1,64,1,1,2,,2\n", "row 2: .* need a rate above 0 each"),
        ("limits.csv", SPEEDS + "aws,x,1,1,1,64,1,1,2,0,2\n", "row 2: .* need a rate above 0"),
        ("limits.csv", LIMITS + "oracle,x,1,1,1,64,1,1\n", "row 2: unknown cloud 'oracle'"),
        ("limits.csv", LIMITS + "aws,x,1,1,1,0,1,1\n", r"limits\.csv row 2: connection_limit"),
        ("limits.csv", LIMITS + 2 * "aws,x,1,1,1,64,1,1\n", "row 3: .* twice"),
        ("limits.csv", LIMITS + "aws,x,1.5,1,1,64,1,1\n", "row 2: vcpus .* whole number"),
        ("limits.csv", LIMITS + "aws,,1,1,1,64,1,1\n", "row 2: instance_type is empty"),
        ("limits.csv", BURSTS + "aws,x,1,2,2,64,1,1,3,\n", "row 2: a burst needs .* burst_s"),
        ("limits.csv", BURSTS + "aws,x,1,2,2,64,1,1,1,300\n", "row 2: a burst rate is below"),
        ("storage.csv", STORAGE + "azure,fast,1\n", r"storage\.csv row 2: read_gbps is 'fast'"),
        ("storage.csv", STORAGE + ",1,1\n", "row 2: .*is empty"),
        ("storage.csv", "region,read_gbps\naws,1\n", "row 1: the header lacks cloud_or_region"),
        ("quotas.csv", "region_glob,vcpus\naws:*,4.5\n", r"quotas\.csv row 2: .*not a whole"),
        ("quotas.csv", "region_glob,vcpus\n,4\n", r"quotas\.csv row 2: region_glob is empty"),
        ("grid.json", "[1]", r"grid\.json must hold one JSON object"),
        ("grid.json", "{", r"grid\.json is not JSON"),
        ("grid.json", '{"base": "yours"}', "base is 'yours'"),
        ("price_rules.yaml", "a: [", r"price_rules\.yaml is not YAML"),
        ("price_rules.yaml", "a: 1", r"price_rules\.yaml must be a mapping"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(
    write_grid: WriteGrid, name: str, text: str, says: str
) -> None:
    directory = write_grid({name: text})
    with pytest.raises(GridInvalid, match=says) as refused:
        load_grid(directory)
    assert refused.value.message in [one.message for one in audit_grid(directory).errors]


def test_a_grid_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GridInvalid, match="no grid"):
        load_grid(tmp_path / "nowhere")
    with pytest.raises(GridInvalid, match="no region"):
        load_grid(tmp_path)


def test_a_type_has_its_price_in_a_region(write_grid: WriteGrid) -> None:
    """Own types have own ratios; a cloud with shipped types has the shipped ones."""
    ratios = "region,ratio,as_of\naws:us-east-1,1.5,2026-01-01\n"
    grid = load_grid(
        write_grid({"limits.csv": LIMITS + "aws,x,2,5,5,64,0.1,8\n", "instance_prices.csv": ratios})
    )
    own, shipped = grid.instance_type("aws"), grid.instance_type("gcp")
    assert grid.priced("aws:us-east-1", own).usd_per_hour == pytest.approx(0.15)
    assert grid.priced("aws:eu-west-1", own) is own
    assert grid.priced("gcp:europe-west1", shipped).usd_per_hour == pytest.approx(
        1.1 * shipped.usd_per_hour, rel=0.001
    )
