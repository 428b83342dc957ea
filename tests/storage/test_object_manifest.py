from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from skyplane_orchestration.errors import ConfigurationInvalid, InvalidLocation, StoreError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import object_manifest, open as storage_open

JOB = TransferJob(Location("s3://src/p/"), Location("gs://dst/q/"))
NONE = CredentialSources(is_ambient_allowed=False)


def row(key: str, state: str = "copied", **more: Any) -> dict[str, Any]:
    return {
        "state": state,
        "source": f"p/{key}",
        "destination": f"q/{key}",
        "bytes": 7,
        "attempts": 1,
        **more,
    }


def test_a_row_per_object_with_urls(tmp_path: Path) -> None:
    rows = [
        row("a b%2B", crc32c=2**32 - 1, not_carried=["storage-class", "tags"]),
        row("b", "skipped", reason="it is there"),
        row("c\n", "failed", code="not-found", reason="gone"),
    ]
    uri = object_manifest.write_manifest(f"{tmp_path}/m.parquet", JOB, iter(rows), NONE)
    assert uri == f"file://{tmp_path}/m.parquet"
    table = pq.read_table(tmp_path / "m.parquet")
    assert table.schema.equals(object_manifest.SCHEMA)
    assert table.to_pylist()[0] == {
        "state": "copied",
        "source": "s3://src/p/a b%2B",
        "destination": "gs://dst/q/a b%2B",
        "bytes": 7,
        "attempts": 1,
        "crc32c": 2**32 - 1,
        "code": None,
        "reason": None,
        "not_carried": ["storage-class", "tags"],
    }
    assert table.column("reason").to_pylist() == [None, "it is there", "gone"]
    assert table.column("source").to_pylist()[2] == "s3://src/p/c\n"


ROWS = [
    row("a, b\u00e9", crc32c=2**32 - 1, not_carried=["storage-class", "tags"]),
    row('c\n"d"', "failed", code="not-found", reason="gone"),
    {**row("e", "deleted"), "source": ""},
]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".ndjson", ".csv", ".CSV", ""])
@pytest.mark.parametrize("rows", [ROWS, []])
def test_each_suffix_is_the_format_of_the_same_rows(
    tmp_path: Path, suffix: str, rows: list[dict[str, Any]]
) -> None:
    file = tmp_path / f"m{suffix}"
    object_manifest.write_manifest(str(file), JOB, iter(rows), NONE)
    if suffix in ("", ".parquet"):
        found = pq.read_table(file).to_pylist()
    elif suffix.lower() == ".csv":
        with file.open(encoding="utf-8", newline="") as text:
            found = [
                {
                    **{name: value or None for name, value in one.items()},
                    "source": one["source"],
                    "bytes": int(one["bytes"]),
                    "attempts": int(one["attempts"]),
                    "crc32c": int(one["crc32c"]) if one["crc32c"] else None,
                    "not_carried": one["not_carried"].split() or None,
                }
                for one in csv.DictReader(text)
            ]
    else:
        found = [json.loads(line) for line in file.read_text().splitlines()]
    absent = dict.fromkeys(object_manifest.SCHEMA.names)
    assert found == [
        {
            **absent,
            **one,
            "source": one["source"] and f"s3://src/{one['source']}",
            "destination": f"gs://dst/{one['destination']}",
        }
        for one in rows
    ]


def test_another_suffix_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationInvalid):
        object_manifest.write_manifest(f"{tmp_path}/m.json", JOB, ROWS, NONE)
    assert list(tmp_path.iterdir()) == []


def test_many_rows_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_manifest, "_ROW_GROUP", 10)
    rows = (row(f"{number}") for number in range(95))
    object_manifest.write_manifest(f"{tmp_path}/m.parquet", JOB, rows, NONE)
    file = pq.ParquetFile(tmp_path / "m.parquet")
    assert (file.num_row_groups, file.metadata.num_rows) == (10, 95)


def test_no_rows_give_a_table_without_rows(tmp_path: Path) -> None:
    object_manifest.write_manifest(f"{tmp_path}/m.parquet", JOB, (), NONE)
    assert pq.read_table(tmp_path / "m.parquet").num_rows == 0


def test_a_manifest_in_the_destinations_bucket_uses_its_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Any] = []

    class Store:
        def put(self, key: str, data: Any) -> None:
            opened.append(key)

        def close(self) -> None: ...

    def open_store(spec: Any, *_: Any) -> Store:
        opened.append((spec.endpoint_url, spec.bucket))
        return Store()

    monkeypatch.setattr(storage_open, "open_store", open_store)
    job = TransferJob(
        Location("/data/"),
        Location("s3://dst/q/", "aws:eu-west-3", "http://h:1", "", {"payload": "signed"}),
    )
    object_manifest.write_manifest("s3://dst/m.parquet", job, (), NONE)
    object_manifest.write_manifest("s3://elsewhere/m.parquet", job, (), NONE)
    assert opened == [("http://h:1", "dst"), "m.parquet", (None, "elsewhere"), "m.parquet"]


def test_an_invalid_place(tmp_path: Path) -> None:
    with pytest.raises(InvalidLocation):
        object_manifest.write_manifest("ftp://host/m", JOB, (), NONE)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        object_manifest.write_manifest(f"{tmp_path}/file/m.parquet", JOB, (), NONE)
