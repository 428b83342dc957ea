"""The suffix of a file that is written is its format."""

from __future__ import annotations

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.output_format import MANIFESTS, require_manifest, suffix_of


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("m.parquet", ".parquet"),
        ("s3://b/x.y/m.CSV", ".csv"),
        ("m.jsonl", ".jsonl"),
        ("m.ndjson", ".ndjson"),
        # Not a suffix: as before there were others.
        ("m", ".parquet"),
        ("s3://b/x.csv/m", ".parquet"),
        ("m.", ".parquet"),
        ("s3://b/runs/manual__2026-01-01T00:00:00.123456+00:00", ".parquet"),
        ("s3://b/runs/2026.01.31", ".parquet"),
    ],
)
def test_the_suffix_is_the_format(name: str, suffix: str) -> None:
    assert suffix_of(name, MANIFESTS) == suffix
    require_manifest(name)


@pytest.mark.parametrize(
    "name",
    [
        *("m.json", "m.txt", "m.parquet.gz", "m.csv.zst", "m.XLSX", "s3://b/m.svg", "m.html"),
        # A template of several lines ends in one.
        *("m.csv ", "m.csv~", "m.csv-2026-01-31", "s3://b/m.parquet?versionId=1", "m.tar_gz"),
        "m.csv\n",
    ],
)
def test_another_suffix_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        require_manifest(name)
    assert repr(name) in refused.value.message
    assert ".parquet, .jsonl, .ndjson, .csv" in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("name", ["", "s3://b/m/", "out/", "s3://b", "s3://b/"])
def test_a_folder_is_no_file(name: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="names no file"):
        require_manifest(name)


@pytest.mark.parametrize(
    "name", ["{{ params.m }}", "s3://b/{{ ds }}.txt", "{% if x %}m{% endif %}"]
)
def test_a_template_is_checked_once_it_is_rendered(name: str) -> None:
    require_manifest(name)
