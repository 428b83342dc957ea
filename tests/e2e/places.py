"""Buckets of every kind of store, as jobs and as tests reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from azure.storage.blob import ContainerClient
from botocore.config import Config
from tests.faults import azurite, fake_gcs, versitygw

from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Why there may be no emulator.
UNAVAILABLE = (versitygw.Unavailable, fake_gcs.Unavailable, azurite.Unavailable)

_SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "az"}


@dataclass(frozen=True)
class Place:
    """A bucket; for files a folder, on Azure `account/container`."""

    kind: str
    bucket: str
    endpoint: str = ""
    credentials: Credentials | None = None

    def named(self, bucket: str) -> Place:
        """Another bucket of the same server."""
        return replace(self, bucket=bucket)

    def location(self, prefix: str, region: str, endpoint: str = "") -> Location:
        scheme = _SCHEMES.get(self.kind)
        url = f"{scheme}://{self.bucket}/{prefix}" if scheme else f"file://{self.bucket}/{prefix}"
        return Location(url, region, endpoint or self.endpoint)

    def store(self, **options: str) -> ObjectStore:
        bucket = "/" if self.kind == "file" else self.bucket
        given = tuple(sorted(options.items()))
        spec = StoreSpec(self.kind, bucket, self.endpoint or None, "us-east-1", given)
        return open_without_retries(spec, self.credentials)

    def key(self, prefix: str) -> str:
        return f"{self.bucket}/{prefix}".lstrip("/") if self.kind == "file" else prefix

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the cloud's own tools get in."""
        prefix = {"s3": "AWS", "azure": "AZURE_STORAGE"}.get(self.kind, "")
        return {
            f"{prefix}_{name.removeprefix('account_').upper()}": value
            for name, value in (self.credentials or {}).items()
        }

    def s3_client(self) -> S3Client:
        given = self.credentials or Credentials({})
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=given["access_key_id"],
            aws_secret_access_key=given["secret_access_key"],
            config=Config(request_checksum_calculation="when_required"),
        )

    def container_client(self) -> ContainerClient:
        account, _, container = self.bucket.partition("/")
        key = {
            "account_name": account,
            "account_key": (self.credentials or Credentials({}))["account_key"],
        }
        return ContainerClient(f"{self.endpoint}/{account}", container, credential=key)


@contextmanager
def emulated(folder: Path, name: str) -> Iterator[dict[str, Place]]:
    """One empty bucket of each kind, by its kind, until the block ends; logs go to `folder`.

    Raises one of `UNAVAILABLE`.
    """
    for kind in ("s3", "azure", "files"):
        (folder / kind).mkdir()
    with ExitStack() as stack:
        s3 = stack.enter_context(versitygw.running(folder / "s3"))
        gcs = stack.enter_context(fake_gcs.running(folder / "gcs.log"))
        azure = stack.enter_context(azurite.running(folder / "azure"))
        keys = Credentials(
            {"access_key_id": s3.access_key_id, "secret_access_key": s3.secret_access_key}
        )
        account = Credentials({"account_key": azure.account_key})
        made = {
            "s3": Place("s3", name, s3.url, keys),
            "gcs": Place("gcs", fake_gcs.create_bucket(gcs, name), gcs),
            "azure": Place("azure", f"{azure.account}/{name}", azure.url, account),
            "file": Place("file", str(folder / "files")),
        }
        made["s3"].s3_client().create_bucket(Bucket=name)
        with made["azure"].container_client() as client:
            client.create_container()
        yield made
