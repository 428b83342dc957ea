"""The stores of regions: versitygw for AWS, fake-gcs-server for Google, Azurite for Azure.

Objects are written and compared by the SDK of each cloud.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import boto3
from azure.storage.blob import ContainerClient
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from tests.faults import azurite, fake_gcs, versitygw

from skyplane_orchestration.model.location import Location

BUCKET: Final = "bucket"


class Objects(Protocol):
    """The objects of a bucket."""

    def put(self, key: str, body: bytes) -> None: ...

    def digests(self, prefix: str) -> dict[str, str]:
        """Key -> SHA-256 of its bytes."""
        ...

    def remove(self, prefix: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Store:
    """The store of a region.

    Attributes:
        root: the URL of its bucket.
        environment: what processes need to use it.
    """

    region: str
    root: str
    endpoint_url: str
    objects: Objects
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def place(self, prefix: str) -> Location:
        url = f"{self.root}/{prefix}/"
        return Location(url, self.region, self.endpoint_url, options=self.options)

    def digests(self, prefix: str) -> dict[str, str]:
        """Key below the prefix -> SHA-256 of its bytes."""
        found = self.objects.digests(f"{prefix}/")
        return {key.removeprefix(f"{prefix}/"): digest for key, digest in found.items()}


@contextmanager
def running(region: str, folder: Path, host: str, prefix: Sequence[str]) -> Iterator[Store]:
    """The store of a region with an empty bucket, until the block ends.

    Args:
        folder: for its files.
        host: the address that it listens on.
        prefix: words before its command, which enter another network namespace.

    Raises Unavailable: its program does not run here.
    """
    folder.mkdir()
    of_cloud = {"gcp": _gcs, "azure": _azure}.get(region.partition(":")[0], _s3)
    with of_cloud(region, folder, host, prefix) as store:
        yield store


# -- S3


@dataclass(frozen=True, slots=True)
class _S3:
    client: Any
    folder: Path

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=body)

    def digests(self, prefix: str) -> dict[str, str]:
        files = (file for file in (self.folder / prefix).rglob("*") if file.is_file())
        return {str(file.relative_to(self.folder)): _digest_of(file) for file in files}

    def remove(self, prefix: str) -> None:
        shutil.rmtree(self.folder / prefix, ignore_errors=True)


def _digest_of(file: Path) -> str:
    with file.open("rb") as body:
        return hashlib.file_digest(body, "sha256").hexdigest()


@contextmanager
def _s3(region: str, folder: Path, host: str, prefix: Sequence[str]) -> Iterator[Store]:
    options = "--data-integrity-etag"
    with versitygw.running(folder, options, host=host, prefix=prefix) as server:
        key, secret = server.access_key_id, server.secret_access_key
        client = boto3.client(
            "s3",
            endpoint_url=server.url,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        environment = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        objects = _S3(client, folder / BUCKET)
        yield Store(region, f"s3://{BUCKET}", server.url, objects, environment)


# -- Google Cloud Storage


@dataclass(frozen=True, slots=True)
class _Gcs:
    bucket: Any

    def put(self, key: str, body: bytes) -> None:
        self.bucket.blob(key).upload_from_string(body)

    def digests(self, prefix: str) -> dict[str, str]:
        rows = self.bucket.list_blobs(prefix=prefix)
        return {row.name: hashlib.sha256(row.download_as_bytes()).hexdigest() for row in rows}

    def remove(self, prefix: str) -> None:
        for row in list(self.bucket.list_blobs(prefix=prefix)):
            row.delete()


@contextmanager
def _gcs(region: str, folder: Path, host: str, prefix: Sequence[str]) -> Iterator[Store]:
    with fake_gcs.running(folder / "server.log", host=host, prefix=prefix) as url:
        fake_gcs.create_bucket(url, BUCKET)
        nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
        client = storage.Client("test", credentials=nobody, client_options={"api_endpoint": url})
        objects, options = _Gcs(client.bucket(BUCKET)), {"anonymous": "true"}
        yield Store(region, f"gs://{BUCKET}", url, objects, options=options)


# -- Azure Blob Storage


@dataclass(frozen=True, slots=True)
class _Azure:
    container: ContainerClient

    def put(self, key: str, body: bytes) -> None:
        self.container.upload_blob(key, body)

    def digests(self, prefix: str) -> dict[str, str]:
        names = self.container.list_blob_names(name_starts_with=prefix)
        bodies = ((name, self.container.download_blob(name).readall()) for name in names)
        return {name: hashlib.sha256(body).hexdigest() for name, body in bodies}

    def remove(self, prefix: str) -> None:
        for name in list(self.container.list_blob_names(name_starts_with=prefix)):
            self.container.delete_blob(name)


@contextmanager
def _azure(region: str, folder: Path, host: str, prefix: Sequence[str]) -> Iterator[Store]:
    with azurite.running(folder, host=host, prefix=prefix) as server:
        url = f"{server.url}/{server.account}"
        names = {"AccountName": server.account, "AccountKey": server.account_key}
        connection = ";".join(f"{name}={value}" for name, value in names.items())
        connection += f";BlobEndpoint={url};"
        environment = {"AZURE_STORAGE_CONNECTION_STRING": connection}
        with ContainerClient.from_connection_string(connection, BUCKET) as container:
            container.create_container()
            root = f"az://{server.account}/{BUCKET}"
            yield Store(region, root, url, _Azure(container), environment)
