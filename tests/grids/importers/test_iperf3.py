"""A folder of iperf3 results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.importers.iperf3 import read_iperf3

NAME = "aws_us-east-1__gcp_us-east1.json"
#: 2026-03-04 12:00 UTC.
NOON = 1772625600


def result(gbps: float, **test: Any) -> dict[str, Any]:
    return {
        "start": {
            "timestamp": {"timesecs": NOON},
            "test_start": {"protocol": "TCP", "num_streams": 64, "reverse": 0, **test},
        },
        "end": {
            "sum_sent": {"bits_per_second": 9e9},
            "sum_received": {"bits_per_second": gbps * 1e9},
        },
    }


def put(folder: Path, name: str, document: object) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / name).write_text(text, encoding="utf-8")


def test_the_name_says_which_pair_and_runs_of_a_pair_become_their_median(tmp_path: Path) -> None:
    put(tmp_path, NAME, result(4))
    put(tmp_path, "aws_us-east-1__gcp_us-east1__2.json", result(6))
    put(tmp_path, "aws_us-east-1__gcp_us-east1__evening.json", result(5))
    put(tmp_path, "gcp_us-east1-b__aws_us-east-1.json", result(3, reverse=1))
    (tmp_path / "README").write_text("not a result")
    found = read_iperf3(tmp_path)
    assert list(found.rates.rows()) == [
        (("aws:us-east-1", "gcp:us-east1"), 5.0, 3, "2026-03-04"),
        (("gcp:us-east1", "aws:us-east-1"), 3.0, 1, "2026-03-04"),
    ]
    assert found.rates.repeated == 1


def test_a_list_of_pairs_goes_before_the_name(tmp_path: Path) -> None:
    put(tmp_path, "monday.json", result(4))
    put(tmp_path, "pairs.csv", "file,src,dst\nmonday.json,aws:us-east-1,azure:eastus\n")
    assert list(read_iperf3(tmp_path).rates.by_pair) == [("aws:us-east-1", "azure:eastus")]


def test_another_number_of_connections_is_noted(tmp_path: Path) -> None:
    put(tmp_path, NAME, result(4, num_streams=16))
    put(tmp_path, "gcp_us-east1__aws_us-east-1.json", result(4))
    notes = " ".join(read_iperf3(tmp_path).notes)
    assert "1 of the results were made with 16 connections" in notes


def test_a_result_without_a_date_has_none(tmp_path: Path) -> None:
    put(tmp_path, NAME, {"end": {"sum_received": {"bits_per_second": 1}}})
    assert [day for _, _, _, day in read_iperf3(tmp_path).rates.rows()] == [""]


def test_the_digest_depends_on_names_and_contents(tmp_path: Path) -> None:
    put(tmp_path, NAME, result(4))
    before = read_iperf3(tmp_path).sha256
    put(tmp_path, NAME, result(5))
    assert read_iperf3(tmp_path).sha256 != before


@pytest.mark.parametrize(
    ("name", "document", "says"),
    [
        (NAME, {"error": "unable to connect"}, "a run that failed: unable to connect"),
        (NAME, {**result(4), "error": "interrupted"}, "a run that failed"),
        (NAME, {"end": {}}, r"no end\.sum_received\.bits_per_second"),
        (NAME, {"end": {"sum_received": {"bits_per_second": "4"}}}, "no end"),
        (NAME, {"end": []}, "no end"),
        (NAME, {"end": {"sum_received": {"bits_per_second": -1}}}, "is -1"),
        (NAME, {"end": {"sum_received": {"bits_per_second": float("nan")}}}, "is nan"),
        (NAME, result(4, protocol="UDP"), "a run over UDP"),
        (NAME, result(4, bidir=1), "in both directions at once"),
        (NAME, "[]", "must hold one JSON object"),
        (NAME, "{", "is not JSON"),
        (NAME, "", "is not JSON"),
        ("run1.json", result(4), r"run1\.json does not say which pair"),
        ("aws_us-east-1__.json", result(4), "does not say which pair"),
        ("aws_us-east-1__mars.json", result(4), r"mars\.json: 'mars' is not a region tag"),
        ("moon_a__aws_us-east-1.json", result(4), "unknown cloud 'moon'"),
        ("aws_us-east-1__aws_us-east-1.json", result(4), "src and dst are both"),
        ("pairs.csv", "file,src\n", r"pairs\.csv row 1: the header lacks dst"),
        ("pairs.csv", f"file,src,dst\n{NAME},aws:a,aws:a\n", r"pairs\.csv row 2: src and dst"),
        ("pairs.csv", f"file,src,dst\n{NAME},a,aws:a\n", r"pairs\.csv row 2: 'a' is not"),
        ("pairs.csv", "file,src,dst\nx.json,aws:a,aws:b\n", r"names 'x\.json', which is not in"),
        (
            "pairs.csv",
            f"file,src,dst\n{NAME},aws:a,aws:b\n{NAME},aws:a,aws:b\n",
            r"pairs\.csv row 3: .* twice",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, name: str, document: object, says: str
) -> None:
    put(tmp_path, NAME, result(4))
    put(tmp_path, name, document)
    with pytest.raises(GridInvalid, match=says) as raised:
        read_iperf3(tmp_path)
    assert name in raised.value.message


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GridInvalid, match="has no iperf3 result"):
        read_iperf3(tmp_path)
