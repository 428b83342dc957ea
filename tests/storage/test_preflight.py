from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.memory_store import create_bucket

from skyplane_gateway import stores
from skyplane_gateway.stores import StoreSpec
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    EmptySource,
    InvalidLocation,
    NotFound,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import open as storage_open, preflight
from skyplane_orchestration.storage.open import spec_of

NONE = CredentialSources(is_ambient_allowed=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in {"a.csv": 10, "b.csv": 20, "sub/c.txt": 30}.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return tmp_path / "in"


def job_of(folder: Path, **more: Any) -> TransferJob:
    return TransferJob(Location(f"{folder}/"), Location(f"{folder.parent}/out/"), **more)


def test_volume_counts_what_the_filters_let_through(folder: Path) -> None:
    volume = preflight.measure(job_of(folder), NONE)
    assert (volume.objects, volume.size_bytes, volume.is_capped) == (3, 60, False)
    assert preflight.measure(job_of(folder, include=("*.csv",)), NONE).objects == 2
    assert preflight.measure(job_of(folder, exclude=("*.csv",)), NONE).size_bytes == 30


def test_a_listing_shows_the_classes_and_the_largest_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_bucket("mixed")
    store = stores.open_store(StoreSpec("memory", "mixed"))
    sizes = {"a": (10, None), "b": (5, "STANDARD_IA"), "c": (3, "STANDARD_IA"), "d": (2, "GLACIER")}
    rows = [
        replace(store.put(key, bytes(size)), storage_class=name)
        for key, (size, name) in sizes.items()
    ]
    monkeypatch.setattr(store, "list", lambda prefix, **_: iter(rows))
    monkeypatch.setattr(storage_open, "open_store", lambda *_: store)
    job = TransferJob(Location("s3://mixed/"), Location("s3://there/"))
    assert preflight.measure(job, NONE).contents == SourceContents(
        0.5, {"STANDARD_IA": 0.4, "GLACIER": 0.1}
    )
    rows[:] = [replace(row, size_bytes=0) for row in rows[:2]]
    empty = SourceContents(0.0, {"STANDARD_IA": 0.0})
    assert preflight.measure(job, NONE).contents == empty


@pytest.mark.parametrize(("cap", "is_capped"), [(2, True), (3, False), (4, False)])
def test_a_capped_listing_is_marked(
    cap: int, is_capped: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "LISTING_CAP", cap)
    volume = preflight.measure(job_of(folder), NONE)
    assert volume.objects == min(cap, 3)
    assert volume.is_capped is is_capped


def test_nothing_to_copy(folder: Path) -> None:
    nothing = job_of(folder, include=("*.parquet",))
    with pytest.raises(EmptySource, match="filters leave out all 3 objects"):
        preflight.measure(nothing, NONE)
    allowed = job_of(folder, include=("*.parquet",), allow_empty=True)
    assert preflight.measure(allowed, NONE).objects == 0


def test_a_folder_of_include_that_is_not_there(folder: Path) -> None:
    """Only keys below it are listed, so the message says nothing of others."""
    with pytest.raises(EmptySource, match=r"no key under .* begins with '2024/', as include"):
        preflight.measure(job_of(folder, include=("2024/*",)), NONE)


def test_a_single_object_that_is_not_there(folder: Path) -> None:
    job = TransferJob(Location(f"{folder}/none"), Location(f"{folder.parent}/out"), recursive=False)
    with pytest.raises(NotFound):
        preflight.measure(job, NONE)


def test_files_have_the_region_of_the_other_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "bucket_region", lambda spec, credentials: "eu-west-3")
    bucket = Location("s3://b/p/")
    for source, destination in (
        (Location(f"{folder}/"), bucket),
        (bucket, Location(f"{folder}/")),
    ):
        found = preflight.locate(TransferJob(source, destination), NONE)
        assert found.source.region == found.destination.region == "aws:eu-west-3"
    here = preflight.locate(job_of(folder), NONE)
    assert here.source.region == here.destination.region
    assert here.source.region.startswith("local:")
    given = preflight.locate(
        TransferJob(Location("s3://a/", "aws:us-east-1"), Location(f"{folder}/", "gcp:us-east1")),
        NONE,
    )
    assert (given.source.region, given.destination.region) == ("aws:us-east-1", "gcp:us-east1")


def test_locating_changes_nothing_else(folder: Path) -> None:
    job = job_of(folder, include=("*.csv",), conflict="skip", verify="reread", objects=3)
    found = preflight.locate(job, NONE)
    assert found.to_dict() | {"source": 0, "destination": 0} == job.to_dict() | {
        "source": 0,
        "destination": 0,
    }


def test_a_store_that_does_not_name_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "bucket_region", lambda spec, credentials: None)
    with pytest.raises(InvalidLocation, match="give source_region"):
        preflight.locate(TransferJob(Location("s3://a/"), Location("s3://b/")), NONE)


def test_overlapping_ends_are_refused_without_a_request(folder: Path) -> None:
    with pytest.raises(ConfigurationInvalid):
        preflight.locate(TransferJob(Location(f"{folder}/"), Location(f"{folder}/sub/")), NONE)


def test_a_preview_says_what_would_happen_and_why(folder: Path) -> None:
    out = folder.parent / "out"
    out.mkdir()
    (out / "a.csv").write_bytes(b"there")
    job = job_of(folder, conflict="skip")
    rows = [preflight.preview_row(job, row) for row in preflight.previewed(job, NONE)]
    assert [(row["source"].rpartition("/")[2], row["action"]) for row in rows] == [
        ("a.csv", "skip"),
        ("b.csv", "copy"),
        ("c.txt", "copy"),
    ]
    assert rows[0]["reason"]
    assert rows[2] == {
        "source": f"file://{folder}/sub/c.txt",
        "destination": f"file://{out}/sub/c.txt",
        "bytes": 30,
        "action": "copy",
        "reason": rows[2]["reason"],
    }
    assert [path.name for path in out.iterdir()] == ["a.csv"]


def test_the_specification_of_a_store() -> None:
    spec = spec_of(
        Location("s3://b/p/", "aws:eu-west-3", "http://h:1", "env:X", {"payload": "signed"})
    )
    assert spec.to_dict() == {
        "kind": "s3",
        "bucket": "b",
        "endpoint_url": "http://h:1",
        "region": "eu-west-3",
        "options": {"payload": "signed"},
    }
    assert spec_of(Location("/data/", "aws:eu-west-3")).region is None


def test_azure_does_not_name_its_region(tmp_path: Path) -> None:
    here, there = Location(f"{tmp_path}/"), Location("az://account/container/")
    with pytest.raises(InvalidLocation, match="for example azure:westeurope"):
        preflight.locate(TransferJob(here, there), NONE)
    located = preflight.locate(TransferJob(here, there.at("azure:westeurope")), NONE)
    assert located.destination.region == located.source.region == "azure:westeurope"


@pytest.mark.parametrize(
    ("account", "endpoint"), [("devstore", "http://127.0.0.1:10000/devstore"), ("other", None)]
)
def test_a_connection_string_names_the_endpoint_of_its_account(
    monkeypatch: pytest.MonkeyPatch, account: str, endpoint: str | None
) -> None:
    text = "AccountName=devstore;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:10000/devstore/;"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert spec_of(Location(f"az://{account}/box/")).endpoint_url == endpoint
    given = Location(f"az://{account}/box/", endpoint_url="http://127.0.0.1:1")
    assert spec_of(given).endpoint_url == "http://127.0.0.1:1"


@pytest.mark.parametrize("manifest", ["-", "a:m.parquet", ""])
def test_an_invalid_manifest_is_refused_early(manifest: str, tmp_path: Path) -> None:
    job = TransferJob(Location(f"{tmp_path}/a/"), Location(f"{tmp_path}/b/"))
    preflight.require_usable(job, None)
    preflight.require_usable(job, f"{tmp_path}/m.parquet")
    with pytest.raises(InvalidLocation, match="is a folder; add a name"):
        preflight.require_usable(job, str(tmp_path))
    # A place that cannot be looked at is an error of the write, in one line.
    preflight.require_usable(job, f"{tmp_path}/{'n' * 300}/m.csv")
    with pytest.raises(ConfigurationInvalid):
        preflight.require_usable(job, manifest)


@pytest.mark.parametrize(
    ("variables", "given", "endpoint"),
    [
        ({}, "", None),
        ({"AWS_ENDPOINT_URL": "http://all"}, "", "http://all"),
        ({"AWS_ENDPOINT_URL": "http://all", "AWS_ENDPOINT_URL_S3": "http://s3"}, "", "http://s3"),
        ({"AWS_ENDPOINT_URL": "http://all"}, "http://given", "http://given"),
    ],
)
def test_the_endpoint_of_the_environment_is_handed_to_gateways(
    variables: dict[str, str],
    given: str,
    endpoint: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert spec_of(Location("s3://b/k", endpoint_url=given)).endpoint_url == endpoint
    assert spec_of(Location("/data/")).endpoint_url is None


def test_the_emulator_of_the_environment_is_handed_to_gateways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    assert spec_of(Location("gs://b/k")).endpoint_url == "http://localhost:4443"
    assert spec_of(Location("s3://b/k")).endpoint_url is None
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "https://emulator")
    assert spec_of(Location("gs://b/k")).endpoint_url == "https://emulator"
    assert spec_of(Location("gs://b/k", endpoint_url="http://x")).endpoint_url == "http://x"


def test_a_preview_lists_the_source_once_and_says_when_there_is_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_store = stores.open_store

    def counted(*arguments: Any) -> Any:
        store = open_store(*arguments)
        listing = store.list

        def list_it(prefix: str, **more: Any) -> Any:
            opened.append(prefix)
            return listing(prefix, **more)

        monkeypatch.setattr(store, "list", list_it)
        return store

    monkeypatch.setattr(storage_open, "open_store", counted)
    assert len(list(preflight.previewed(job_of(folder), NONE))) == 3
    assert len([prefix for prefix in opened if prefix.endswith("/in/")]) == 1
    (tmp_path / "none").mkdir()
    with pytest.raises(EmptySource):
        list(preflight.previewed(job_of(tmp_path / "none"), NONE))
    assert list(preflight.previewed(job_of(tmp_path / "none", allow_empty=True), NONE)) == []


def test_gateways_tell_types_and_times_of_files(folder: Path) -> None:
    told = (stores.GUESSED_TYPE, stores.KEPT_TIME)
    assert storage_open.source_spec(job_of(folder)).options == told
    unguessed = storage_open.source_spec(job_of(folder, guess_mime_type=False))
    assert unguessed.options == (stores.KEPT_TIME,)
    bucket = TransferJob(Location("s3://a/x/"), Location("s3://b/y/"))
    assert storage_open.source_spec(bucket) == storage_open.spec_of(bucket.source)


def test_a_dry_run_refuses_what_a_strict_transfer_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as listings show metadata: they have no tags."""
    for name in ("cold", "there"):
        create_bucket(name)
    cold = stores.open_store(StoreSpec("memory", "cold"))
    rows = [
        replace(cold.put(key, b"1"), not_carried=("storage-class",) if key != "plain" else ())
        for key in ("frozen", "kept", "plain")
    ]
    there = stores.open_store(StoreSpec("memory", "there"))
    there.put("y/kept", b"1")
    monkeypatch.setattr(cold, "list", lambda prefix, **_: iter(rows))
    monkeypatch.setattr(
        storage_open, "open_store", lambda spec, *_: cold if spec.bucket == "cold" else there
    )
    ends = Location("s3://cold/"), Location("s3://there/y/")

    def actions(**more: Any) -> list[str]:
        return [row.action for row in preflight.previewed(TransferJob(*ends, **more), NONE)]

    assert actions(conflict="skip") == ["copy", "skip", "copy"]
    assert actions(conflict="skip", strict_metadata=True) == ["refuse", "skip", "copy"]
