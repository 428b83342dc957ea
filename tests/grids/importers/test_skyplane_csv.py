"""The public throughput, round-trip and price tables."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.importers.skyplane_csv import read_skyplane

HEADER = "src_region,src_tier,dst_region,dst_tier,throughput_sent,throughput_recieved,success\n"
ROWS = (
    "aws:us-east-1,PREMIUM,gcp:us-east4-a,PREMIUM,5000000000,4500000000,True\n"
    "aws:us-east-1,PREMIUM,gcp:us-east4-a,STANDARD,5000000000,4400000000,True\n"
    "gcp:us-east4-a,PREMIUM,aws:us-east-1,PREMIUM,9,1000000000,True\n"
    "gcp:us-east4-b,PREMIUM,aws:us-east-1,PREMIUM,9,9000000000,True\n"
    "gcp:us-east4-c,PREMIUM,aws:us-east-1,PREMIUM,9,2000000000,True\n"
    "gcp:us-east4-a,PREMIUM,gcp:us-east4-b,PREMIUM,9,1,True\n"
    "aws:us-east-1,PREMIUM,azure:eastus,PREMIUM,,,False\n"
    "azure:eastus,STANDARD,aws:us-east-1,,9,3000000000,True\n"
)


def table(directory: Path, text: str, name: str = "throughput.csv") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def test_what_the_receiver_counted_is_what_counts(tmp_path: Path) -> None:
    source = table(tmp_path, HEADER + ROWS)
    found = read_skyplane(source)
    assert list(found.rates.rows()) == [
        (("aws:us-east-1", "gcp:us-east4"), 4.5, 1, ""),
        (("azure:eastus", "aws:us-east-1"), 3.0, 1, ""),
        (("gcp:us-east4", "aws:us-east-1"), 2.0, 3, ""),
    ]
    assert found.rates.repeated == 1
    assert found.skipped == {
        "rows of another tier than PREMIUM": 1,
        "rows inside one region": 1,
        "runs that failed": 1,
    }
    assert found.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert found.regions == ("aws:us-east-1", "azure:eastus", "gcp:us-east4")


def test_the_other_tier_can_be_asked_for(tmp_path: Path) -> None:
    found = read_skyplane(table(tmp_path, HEADER + ROWS), tier="STANDARD")
    # Only an end of Google's has a tier to choose.
    assert {pair: rate for pair, rate, _, _ in found.rates.rows()} == {
        ("aws:us-east-1", "gcp:us-east4"): 4.4,
        ("azure:eastus", "aws:us-east-1"): 3.0,
    }


def test_the_other_spelling_and_a_table_without_tiers_do_as_well(tmp_path: Path) -> None:
    text = "src_region,dst_region,throughput_received\naws:us-east-1,gcp:us-east4-a,2500000000\n"
    assert next(read_skyplane(table(tmp_path, text)).rates.rows())[1] == 2.5


def test_round_trips_and_prices_beside_it_are_read_for_its_regions(tmp_path: Path) -> None:
    trips = table(
        tmp_path,
        "src_region,src_tier,dst_region,dst_tier,avg_rtt\n"
        "aws:us-east-1,PREMIUM,gcp:us-east4-a,PREMIUM,2.5\n"
        "gcp:us-east4-a,PREMIUM,aws:us-east-1,PREMIUM,\n"
        "aws:us-east-1,PREMIUM,gcp:us-east4-a,STANDARD,9\n"
        "aws:us-east-1,PREMIUM,aws:eu-west-1,PREMIUM,70\n",
        "latency.csv",
    )
    prices = table(
        tmp_path,
        "src,dst,cost\naws:us-east-1,aws:us-east-1,0\naws:us-east-1,gcp:us-east4-a,0.09\n"
        "aws:us-east-1,aws:eu-west-1,0.02\n",
        "cost.csv",
    )
    found = read_skyplane(table(tmp_path, HEADER + ROWS), latency=trips, prices=prices)
    assert found.rtts.by_pair == {("aws:us-east-1", "gcp:us-east4"): [2.5]}
    assert found.prices.by_pair == {("aws:us-east-1", "gcp:us-east4"): [0.09]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", r"throughput\.csv row 1: the header lacks src_region, dst_region, throughput_reciev"),
        ("src_region,dst_region\n", r"row 1: the header lacks throughput_recieved"),
        (HEADER, "has no row of tier PREMIUM between two regions"),
        (
            HEADER + ROWS + "mars,PREMIUM,gcp:us-east4-a,PREMIUM,1,1,True\n",
            "row 10: 'mars' is not a",
        ),
        (HEADER + "aws:US,,aws:us-east-1,,1,1,True\n", "row 2: region name 'US'"),
        (
            HEADER + "aws:us-east-1,,aws:us-east-2,,1,fast,True\n",
            "row 2: throughput_recieved is 'f",
        ),
        (HEADER + "aws:us-east-1,,aws:us-east-2,,1,-1,True\n", "row 2: throughput_recieved is '-1"),
        (HEADER + "aws:us-east-1,,aws:us-east-2,,1,,True\n", "row 2: throughput_recieved is ''"),
        (HEADER + "aws:us-east-1,,aws:us-east-2,,1,nan,True\n", "row 2: throughput_recieved"),
        (HEADER + "aws:us-east-1,aws:us-east-2\n", "row 2: the number of fields"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_by_row(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(GridInvalid, match=says):
        read_skyplane(table(tmp_path, text))


def test_two_prices_of_one_pair_are_refused(tmp_path: Path) -> None:
    text = "src,dst,cost\naws:us-east-1,gcp:us-east4-a,1\naws:us-east-1,gcp:us-east4-b,2\n"
    with pytest.raises(GridInvalid, match=r"cost\.csv row 3: .* another price further up"):
        read_skyplane(table(tmp_path, HEADER + ROWS), prices=table(tmp_path, text, "cost.csv"))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "throughput.csv"
    file.write_bytes(b"\x93\x00")
    with pytest.raises(GridInvalid, match="not UTF-8"):
        read_skyplane(file)
