"""What only Azure has: blocks without uploads, claims of checksums, signatures, tiers."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any

import pytest
from azure.storage.blob import (
    BlobClient,
    ContainerSasPermissions,
    ContentSettings,
    StandardBlobTier,
    generate_container_sas,
)

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    InvalidKey,
    NotFound,
    NotRestored,
    PermissionDenied,
)
from skyplane_gateway.common.objects import (
    Credentials,
    ObjectAttributes,
    StoreSpec,
)
from skyplane_gateway.stores.azure.client import AzureRequest, Container
from skyplane_gateway.stores.azure.requests import crc64_header
from skyplane_gateway.stores.key_rules import UPLOADS_FOLDER, check_azure_key
from skyplane_gateway.stores.registry import open_without_retries


def blob(azure: Any, key: str) -> BlobClient:
    found: BlobClient = azure.container_client().get_blob_client(key)
    return found


def test_the_sdk_reads_what_was_written(azure: Any) -> None:
    attributes = ObjectAttributes(content_type="text/csv", metadata=(("with-dash", "1"),))
    body = b"body"
    azure.shared.put("a b/\u00e9+%2B", body, attributes=attributes, crc32c=crc32c(body))
    found = blob(azure, "a b/\u00e9+%2B").get_blob_properties()
    assert found.metadata == {"with_2d_dash": "1", "skyplane_crc32c": f"{crc32c(body):08x}"}
    assert found.content_settings.content_type == "text/csv"


@pytest.mark.parametrize("whole", [True, False])
def test_our_checksum_counts_only_where_it_is_trusted(azure: Any, whole: bool) -> None:
    store, body = azure.shared, b"body"
    if whole:
        store.put("k", body, crc32c=crc32c(body))
    else:
        upload_id = store.create_upload("k")
        parts = azure.put_parts("k", upload_id, [body])
        store.complete_upload("k", upload_id, parts, size_bytes=4, crc32c=crc32c(body))
    assert store.head("k").crc32c is None
    azure.spec = replace(azure.spec, options=(("checksum", "trusted"),))
    assert azure.open().head("k").crc32c == crc32c(body)
    # A write of another program drops the claim.
    blob(azure, "k").upload_blob(b"else", overwrite=True)
    assert azure.open().head("k").crc32c is None


def test_the_checksum_of_bodies_is_azures() -> None:
    # The check value of CRC-64/NVME, which azure-storage-extensions computes too.
    expected = (0xAE8B14860A799888).to_bytes(8, "little")
    header = {"x-ms-content-crc64": b64encode(expected).decode()}
    assert crc64_header(b"123456789") == header


def test_damaged_bytes_are_refused_by_the_service(
    azure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = azure.shared, crc64_header(b"other")
    upload_id = store.create_upload("part")
    for module in ("requests", "uploads"):
        name = f"skyplane_gateway.stores.azure.{module}.crc64_header"
        monkeypatch.setattr(name, lambda _: other)
    with pytest.raises(ChecksumMismatch, match="Crc64Mismatch"):
        store.put("k", b"body")
    with pytest.raises(ChecksumMismatch, match="Crc64Mismatch"):
        azure.put_parts("part", upload_id, [b"body"])


def test_one_of_two_uploads_of_a_name_wins(azure: Any) -> None:
    store = azure.shared
    one, other = store.create_upload("k"), store.create_upload("k")
    first = azure.put_parts("k", one, [b"first"])
    second = azure.put_parts("k", other, [b"second"])
    assert [part.etag for part in store.list_parts("k", other)] == [second[0].etag]
    store.complete_upload("k", one, first, size_bytes=5)
    # The completion dropped the blocks of the other upload.
    assert store.list_parts("k", other) == ()
    with pytest.raises(NotFound):
        store.complete_upload("k", other, second, size_bytes=6)
    assert azure.read("k") == b"first"


def test_uploads_leave_nothing_in_listings(azure: Any) -> None:
    store = azure.shared
    upload_id = store.create_upload("a/b")
    parts = azure.put_parts("a/b", upload_id, [b"x"])
    names = [row.name for row in azure.container_client().list_blobs()]
    assert names == [f"{UPLOADS_FOLDER}a%2Fb.{upload_id}"]
    store.complete_upload("a/b", upload_id, parts, size_bytes=1)
    assert [row.name for row in azure.container_client().list_blobs()] == ["a/b"]


def test_uploads_of_long_keys_are_listed(azure: Any) -> None:
    keys = ["\u00e9" * 1024, "n" * 199, "n" * 200, "n" * 1024]
    store = azure.shared
    ids = {key: store.create_upload(key) for key in keys}
    assert {row.key: row.upload_id for row in store.list_uploads("")} == ids
    assert {row.key for row in store.list_uploads("n" * 200)} == set(keys[2:])


@pytest.mark.parametrize(
    "key",
    [
        "a\\b",
        "a/../b",
        "./a",
        "a/.",
        "a./b",
        "a.",
        "\x7f",
        "\U0001f600" * 513,
        f"{UPLOADS_FOLDER}x",
        "/" * 254,
    ],
)
def test_keys_that_azure_would_change_are_refused(key: str) -> None:
    with pytest.raises(InvalidKey):
        check_azure_key(key)


def test_keys_that_azure_keeps(azure: Any) -> None:
    for key in ("a.b/.c", "..x/...y", "\x85", "\U0001f600" * 512, "a//b", "/a", "a /"):
        azure.shared.put(key, key.encode())
        assert azure.read(key) == key.encode()


def test_a_leased_blob_is_not_replaced(azure: Any) -> None:
    azure.shared.put("k", b"x")
    upload_id = azure.shared.create_upload("k")
    parts = azure.put_parts("k", upload_id, [b"y"])
    blob(azure, "k").acquire_lease()
    with pytest.raises(PermissionDenied, match="lease") as caught:
        azure.shared.complete_upload("k", upload_id, parts, size_bytes=1)
    assert caught.value.is_permanent
    with pytest.raises(PermissionDenied, match="lease"):
        azure.shared.put("k", b"y")
    with pytest.raises(PermissionDenied, match="lease"):
        azure.shared.delete("k")
    assert azure.read("k") == b"x"


def test_tiers(azure: Any) -> None:
    store = azure.shared
    store.put("k", b"x")
    assert store.head("k").not_carried == ()
    blob(azure, "k").set_standard_blob_tier(StandardBlobTier.COOL)
    assert store.head("k").not_carried == ("storage-class",)
    assert [row.archived for row in store.list("")] == [""]
    blob(azure, "k").set_standard_blob_tier(StandardBlobTier.ARCHIVE)
    assert ["rehydrate it" in row.archived for row in store.list("")] == [True]
    with pytest.raises(NotRestored, match="rehydrate"):
        store.read("k", offset=0, length=1, if_match=None)


def test_a_signature_in_place_of_a_key(azure: Any) -> None:
    account, name = azure.spec.bucket.split("/")
    sas = generate_container_sas(
        account,
        name,
        account_key=azure.credentials["account_key"],
        permission=ContainerSasPermissions(read=True, list=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    azure.shared.put("k", b"x")
    store = open_without_retries(azure.spec, Credentials({"sas_token": sas}))
    assert [row.key for row in store.list("")] == ["k"]
    with store.read("k", offset=0, length=1, if_match=None) as reader:
        assert reader.readinto(memoryview(bytearray(1))) == 1
    with pytest.raises(PermissionDenied, match="SAS"):
        store.put("k", b"y")
    store.close()


@pytest.mark.parametrize(
    ("endpoint_url", "url"),
    [
        (None, "https://acct.blob.core.windows.net/box/k"),
        (
            "https://acct.blob.core.chinacloudapi.cn/",
            "https://acct.blob.core.chinacloudapi.cn/box/k",
        ),
        ("https://acct.dfs.core.windows.net", "https://acct.blob.core.windows.net/box/k"),
        ("http://127.0.0.1:10000", "http://127.0.0.1:10000/acct/box/k"),
        ("http://127.0.0.1:10000/acct", "http://127.0.0.1:10000/acct/box/k"),
    ],
)
def test_the_account_is_in_the_host_or_in_the_path(endpoint_url: str | None, url: str) -> None:
    spec = StoreSpec("azure", "acct/box", endpoint_url, options=(("anonymous", "true"),))
    signed, headers = Container(spec, None).signed(AzureRequest("GET", "k", 200), 0)
    assert signed == url
    assert "authorization" not in headers


def test_the_md5_of_a_blob_that_grows_or_has_pages_does_not_count(azure: Any) -> None:
    """Later writes leave it as it was; each write of a block blob replaces it."""
    first = ContentSettings(content_md5=bytearray(md5(b"one", usedforsecurity=False).digest()))
    log, disk = blob(azure, "log"), blob(azure, "disk")
    log.create_append_blob(content_settings=first)
    log.append_block(b"one")
    log.append_block(b"two")
    disk.create_page_blob(512, content_settings=first)
    store = azure.open()
    for info in store.list(""):
        assert (info.md5, store.head(info.key).md5) == (None, None)
        with store.read(info.key, offset=0, length=info.size_bytes, if_match=None) as reader:
            assert reader.stated is None
