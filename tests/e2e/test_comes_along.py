"""What the command copies beside the bytes, between every two kinds of bucket.

The command runs inside the test's process: `test_cli_cp` holds how it starts and ends.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from azure.storage.blob import ContainerClient
from tests.faults import azurite, fake_gcs

from skyplane_gateway.common.mtime import with_mtime
from skyplane_gateway.common.objects import Credentials, ObjectAttributes, StoreSpec
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.e2e.conftest import Home, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

MIB: Final = 1 << 20
KINDS: Final = ("s3", "gcs", "azure")
#: Classes for 30 and for 90 days.
CLASSES: Final = {
    "s3": ("STANDARD_IA", "GLACIER_IR"),
    "gcs": ("NEARLINE", "COLDLINE"),
    "azure": ("Cool", "Cold"),
}
TAGGED: Final = ("s3", "azure")
TAGS: Final = (("cost centre", "a/b=7"), ("team", "blue+green"))
HEADERS: Final = ObjectAttributes(
    content_type="text/csv", cache_control="max-age=60", metadata=(("with-dash", "blue"),)
)
SIZES: Final = {"large": 6 * MIB, "one": 10, "two": 0}

#: The command with these arguments, and `code` as its exit code.
Run = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Site:
    """A server with a bucket.

    Attributes:
        options: of the command for an end there, without `--src` or `--dst`.
        more: variables of the command's environment.
    """

    url: str
    spec: StoreSpec
    credentials: Credentials | None
    options: tuple[str, ...]
    more: Mapping[str, str]

    def open(self, **options: str) -> ObjectStore:
        spec = dataclasses.replace(self.spec, options=tuple(sorted(options.items())))
        return open_without_retries(spec, self.credentials)


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, servers: tuple[S3Server, S3Server]
) -> Iterator[dict[str, Site]]:
    folder = tmp_path_factory.mktemp("along")
    (folder / "azure").mkdir()
    s3 = servers[0]
    bucket = s3.make_bucket(f"along-{uuid.uuid4().hex[:8]}")
    keys = Credentials({"access_key_id": "test", "secret_access_key": "test"})
    try:
        with fake_gcs.running(folder / "log") as gcs, azurite.running(folder / "azure") as azure:
            google = fake_gcs.create_bucket(gcs, "along")
            named = {"account_name": azure.account, "account_key": azure.account_key}
            account = f"{azure.url}/{azure.account}"
            with ContainerClient(account, "along", credential=named) as client:
                client.create_container()
            place = f"{azure.account}/along"
            yield {
                "s3": Site(
                    f"s3://{bucket}/",
                    StoreSpec("s3", bucket, s3.endpoint, "us-east-1"),
                    keys,
                    ("endpoint", s3.endpoint),
                    {},
                ),
                "gcs": Site(
                    f"gs://{google}/",
                    StoreSpec("gcs", google, gcs),
                    None,
                    (),
                    {"STORAGE_EMULATOR_HOST": gcs},
                ),
                "azure": Site(
                    f"az://{place}/",
                    StoreSpec("azure", place, azure.url),
                    Credentials({"account_key": azure.account_key}),
                    ("endpoint", azure.url, "region", "azure:westeurope"),
                    {"AZURE_STORAGE_KEY": azure.account_key},
                ),
            }
    except (fake_gcs.Unavailable, azurite.Unavailable) as error:
        pytest.skip(str(error))


def end(side: str, site: Site) -> list[str]:
    pairs = zip(site.options[::2], site.options[1::2], strict=True)
    return [text for name, value in pairs for text in (f"--{side}-{name}", value)]


@pytest.fixture
def run(home: Home, sites: dict[str, Site], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    """Runs the command as a user of all sites; its one object."""
    more = {name: value for site in sites.values() for name, value in site.more.items()}
    for name, value in dataclasses.replace(home, more=more).environment.items():
        monkeypatch.setenv(name, value)

    def made(*arguments: str, code: int = 0) -> dict[str, Any]:
        found = main([*arguments, "--json"])
        said = capsys.readouterr()
        assert found == code, said.err
        document: dict[str, Any] = json.loads(said.out)
        return document

    return made


def fill(kind: str, site: Site, prefix: str) -> None:
    """Objects of two classes, all with tags where the store has them."""
    store = site.open()
    for folder, storage_class in zip(("cool", "cold"), CLASSES[kind], strict=True):
        attributes = dataclasses.replace(
            HEADERS, storage_class=storage_class, tags=TAGS if kind in TAGGED else ()
        )
        for name, size in SIZES.items():
            store.put(f"{prefix}{folder}/{name}", bytes(size), attributes=attributes)
    store.close()


@pytest.mark.parametrize(("source", "destination"), list(product(KINDS, KINDS)))
def test_class_and_tags_come_along(
    run: Run, sites: dict[str, Site], source: str, destination: str
) -> None:
    here, there = sites[source], sites[destination]
    prefix, target = f"from-{uuid.uuid4().hex[:8]}/", f"to-{uuid.uuid4().hex[:8]}/"
    fill(source, here, prefix)
    tags = ["--src-option", "tags=keep"] if source in TAGGED else []
    result = run(
        "cp", "-r", here.url + prefix, there.url + target, *end("src", here), *end("dst", there),
        *tags, "--dst-option", "storage-class=keep", "--chunk-mib", "5",
    )  # fmt: skip
    lost = {"tags": 6} if source in TAGGED and destination not in TAGGED else {}
    assert (result["copied"], result["not_carried_by_name"]) == (6, lost)
    store = there.open(**({"tags": "keep"} if destination in TAGGED else {}))
    for folder, expected in zip(("cool", "cold"), CLASSES[destination], strict=True):
        for name in SIZES:
            info = store.head(f"{target}{folder}/{name}")
            has_tags = source in TAGGED and destination in TAGGED
            assert info.storage_class == expected
            assert info.attributes is not None
            assert marked(info.attributes, None) == dataclasses.replace(
                HEADERS, tags=TAGS if has_tags else ()
            )
    store.close()


def test_strict_metadata_copies_what_is_kept_whole(run: Run, sites: dict[str, Site]) -> None:
    here, there = sites["s3"], sites["azure"]
    prefix = f"strict-{uuid.uuid4().hex[:8]}/"
    fill("s3", here, prefix)
    arguments = (
        "cp", "-r", here.url + prefix, there.url + prefix, *end("src", here), *end("dst", there),
        "--chunk-mib", "5", "--strict-metadata",
    )  # fmt: skip
    refused = run(*arguments, code=1)["result"]
    assert (refused["copied"], refused["failed"]) == (0, 6)
    kept = run(*arguments, "--src-option", "tags=keep", "--dst-option", "storage-class=keep")
    assert kept["copied"] == 6


@pytest.mark.parametrize("destination", KINDS)
def test_the_time_of_a_file_becomes_metadata_that_comes_along(
    run: Run, sites: dict[str, Site], destination: str, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name, size in SIZES.items():
        (folder / name).write_bytes(bytes(size))
        os.utime(folder / name, ns=(0, 1_600_000_000_123_456_000))
    there, back, target = sites[destination], sites["s3"], f"files-{uuid.uuid4().hex[:8]}/"
    up = run("cp", "-r", str(folder), there.url + target, *end("dst", there), "--chunk-mib", "5")
    assert up["copied"] == 3
    on = run(
        "cp", "-r", there.url + target, back.url + "on-" + target, *end("src", there),
        *end("dst", back), "--chunk-mib", "5",
    )  # fmt: skip
    assert on["copied"] == 3
    for found, prefix in ((there, target), (back, "on-" + target)):
        store = found.open()
        for name in SIZES:
            attributes = store.head(prefix + name).attributes
            assert attributes is not None
            assert marked(attributes, None).metadata == (("mtime", "1600000000.123456"),)
        store.close()


@pytest.mark.parametrize("source", KINDS)
def test_a_file_gets_the_time_in_the_metadata_and_is_not_copied_again(
    run: Run, sites: dict[str, Site], source: str, tmp_path: Path
) -> None:
    here, prefix, folder = sites[source], f"timed-{uuid.uuid4().hex[:8]}/", tmp_path / "files"
    store = here.open()
    dated = with_mtime(HEADERS, 1_600_000_000_123_456_000)
    for name, size in SIZES.items():
        store.put(prefix + name, bytes(size), attributes=dated)
    arguments = (
        "sync", here.url + prefix, str(folder), *end("src", here), "--chunk-mib", "5",
    )  # fmt: skip
    assert run(*arguments)["copied"] == 3
    times = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert times == dict.fromkeys(SIZES, 1_600_000_000_123_456_000)
    again = run(*arguments)
    assert (again["copied"], again["skipped"]) == (0, 3)
    newer = with_mtime(HEADERS, 1_600_000_001_000_000_000)
    store.put(prefix + "one", b"x" * 10, attributes=newer)
    store.close()
    # The gateways compare as the command does.
    last = run(*arguments, "--gateways", "always")
    assert (last["copied"], last["skipped"]) == (1, 2)
    assert (folder / "one").read_bytes() == b"x" * 10
    assert (folder / "one").stat().st_mtime_ns == 1_600_000_001_000_000_000


@pytest.mark.parametrize("destination", KINDS)
def test_the_form_of_an_upload_does_not_come_along(
    run: Run, sites: dict[str, Site], destination: str
) -> None:
    """The server keeps `aws-chunked` at this place, as several services do."""
    here, there = sites["s3"], sites[destination]
    prefix, target = f"sent-{uuid.uuid4().hex[:8]}/", f"to-{uuid.uuid4().hex[:8]}/"
    sent = dataclasses.replace(HEADERS, content_encoding="gzip, aws-chunked")
    source = here.open()
    for name, size in SIZES.items():
        source.put(prefix + name, bytes(size), attributes=sent)
    source.close()
    result = run(
        "cp", "-r", here.url + prefix, there.url + target, *end("src", here), *end("dst", there),
        "--chunk-mib", "5",
    )  # fmt: skip
    assert (result["copied"], result["metadata_not_carried"]) == (3, 0)
    store = there.open()
    for name in SIZES:
        found = store.head(target + name).attributes
        assert found is not None
        assert marked(found, None) == dataclasses.replace(HEADERS, content_encoding="gzip")
    store.close()


@pytest.mark.parametrize("source", KINDS)
def test_what_files_do_not_keep_is_counted_and_listed(
    run: Run, sites: dict[str, Site], source: str, tmp_path: Path
) -> None:
    here, prefix = sites[source], f"described-{uuid.uuid4().hex[:8]}/"
    fill(source, here, prefix)
    store = here.open()
    for name, size in SIZES.items():
        usual = ObjectAttributes("text/csv", metadata=(("mtime", "1600000000"),))
        store.put(f"{prefix}usual/{name}.csv", bytes(size), attributes=usual)
    store.close()
    manifest = tmp_path / "m.jsonl"
    result = run(
        "cp", "-r", here.url + prefix, str(tmp_path / "out"), *end("src", here),
        "--chunk-mib", "5", "--manifest", str(manifest),
    )  # fmt: skip
    lost = ["cache-control", "content-type", "storage-class", "user-metadata"]
    lost = sorted([*lost, *(["tags"] if source in TAGGED else [])])
    assert (result["copied"], result["metadata_not_carried"]) == (9, 6)
    assert result["not_carried_by_name"] == dict.fromkeys(lost, 6)
    (warning,) = result["warnings"]
    assert "6 objects lost some metadata" in warning
    assert "--strict-metadata" not in warning
    for line in manifest.read_text().splitlines():
        row = json.loads(line)
        assert row["not_carried"] == (None if "/usual/" in row["source"] else lost)


@pytest.mark.parametrize("kind", ["PageBlob", "AppendBlob"])
def test_blobs_that_become_block_blobs_are_named(
    run: Run, sites: dict[str, Site], kind: str
) -> None:
    here, there, prefix = sites["azure"], sites["s3"], f"{kind.lower()}-{uuid.uuid4().hex[:8]}/"
    account, name = here.spec.bucket.split("/")
    named = {"account_name": account, "account_key": here.more["AZURE_STORAGE_KEY"]}
    with ContainerClient(f"{here.spec.endpoint_url}/{account}", name, credential=named) as client:
        for key, size in {"large": 6 * MIB, "one": 512}.items():
            client.upload_blob(prefix + key, bytes(size), blob_type=kind)
    arguments = (
        "cp", "-r", here.url + prefix, there.url + prefix, *end("src", here), *end("dst", there),
        "--chunk-mib", "5",
    )  # fmt: skip
    refused = run(*arguments, "--strict-metadata", code=1)["result"]
    assert (refused["copied"], refused["failed"]) == (0, 2)
    assert {row["code"] for row in refused["failures"]} == {"metadata-not-carried"}
    result = run(*arguments)
    assert (result["copied"], result["not_carried_by_name"]) == (2, {"blob-type": 2})


@pytest.mark.parametrize("kind", KINDS)
def test_an_upload_gets_the_headers_of_its_options(
    run: Run, sites: dict[str, Site], kind: str, tmp_path: Path
) -> None:
    site, prefix = sites[kind], f"set-{uuid.uuid4().hex[:8]}/"
    (tmp_path / "in").mkdir()
    for name, size in SIZES.items():
        (tmp_path / "in" / f"{name}.csv").write_bytes(bytes(size))
    given = [
        *("--content-type", "text/html", "--cache-control", "max-age=5"),
        *("--header", "Content-Disposition: attachment", "--header", "content-language: en"),
        *("--metadata", "owner=me", "--chunk-mib", "5"),
        *(("--header", "Expires: 2037-01-31T06:00:00Z") if kind == "s3" else ()),
    ]
    ends = [f"{tmp_path}/in/", f"{site.url}{prefix}", *end("dst", site)]
    assert run("cp", "-r", *ends, *given)["copied"] == len(SIZES)
    assert run("sync", *ends, *given)["copied"] == 0
    store = site.open()
    for name in SIZES:
        info = store.head(f"{prefix}{name}.csv")
        found = info.attributes
        assert found is not None
        assert (found.content_type, found.cache_control) == ("text/html", "max-age=5")
        assert (found.content_disposition, found.content_language) == ("attachment", "en")
        assert dict(found.metadata)["owner"] == "me"
        assert ("expires" in info.not_carried) == (kind == "s3")
    store.close()
