"""Every kind of store to every other, direct and through a relay, by real gateways.

The gateways run inside the test's process (`InProcessProvisioner`): the same code, over TCP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

import boto3
import pytest
from azure.storage.blob import ContainerClient
from tests.faults import azurite, fake_gcs, versitygw

from skyplane_gateway.checksum import crc32c
from skyplane_gateway.objects import Credentials, ObjectAttributes, StoreSpec
from skyplane_gateway.stores.base import ObjectStore, read_object
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.in_process import InProcessProvisioner
from skyplane_orchestration.provision.local.run_directory import RunRoot

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = pytest.mark.e2e

MIB: Final = 1 << 20
KINDS: Final = ("s3", "gcs", "azure", "file")
ATTRIBUTES: Final = ObjectAttributes(
    content_type="text/csv", cache_control="max-age=60", metadata=(("colour", "blue"),)
)
OBJECTS: Final = {
    "large.bin": os.urandom(11 * MIB + 7),
    "part.bin": os.urandom(5 * MIB),
    "empty": b"",
    "odd/two words+%25ü": b"odd",
    **{f"small/{number}": os.urandom(1000 + number) for number in range(20)},
    "_SUCCESS": b"ok",
}


@dataclass
class Place:
    """A bucket, as jobs and as the test reach it."""

    kind: str
    bucket: str
    endpoint: str = ""
    credentials: Credentials | None = None

    def location(self, prefix: str, region: str) -> Location:
        scheme = {"s3": "s3", "gcs": "gs", "azure": "az"}.get(self.kind)
        url = f"{scheme}://{self.bucket}/{prefix}" if scheme else f"file://{self.bucket}/{prefix}"
        return Location(url, region, self.endpoint)

    def store(self) -> ObjectStore:
        bucket = "/" if self.kind == "file" else self.bucket
        spec = StoreSpec(self.kind, bucket, self.endpoint or None, "us-east-1")
        return open_without_retries(spec, self.credentials)

    def key(self, prefix: str) -> str:
        return f"{self.bucket}/{prefix}".lstrip("/") if self.kind == "file" else prefix


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    folder = tmp_path_factory.mktemp("any")
    (folder / "s3").mkdir()
    (folder / "files").mkdir()
    (folder / "azure").mkdir()
    try:
        with (
            versitygw.running(folder / "s3") as s3,
            fake_gcs.running(folder / "gcs.log") as gcs,
            azurite.running(folder / "azure") as azure,
        ):
            credentials = Credentials(
                {"access_key_id": s3.access_key_id, "secret_access_key": s3.secret_access_key}
            )
            made = {
                "s3": Place("s3", "any", s3.url, credentials),
                "gcs": Place("gcs", fake_gcs.create_bucket(gcs, "any"), gcs),
                "azure": _container(azure),
                "file": Place("file", str(folder / "files")),
            }
            boto3.client(
                "s3",
                endpoint_url=s3.url,
                region_name="us-east-1",
                aws_access_key_id=s3.access_key_id,
                aws_secret_access_key=s3.secret_access_key,
            ).create_bucket(Bucket="any")
            for place in made.values():
                _fill(place)
            yield made
    except (versitygw.Unavailable, fake_gcs.Unavailable, azurite.Unavailable) as error:
        pytest.skip(str(error))


def _container(server: azurite.Server) -> Place:
    named = {"account_name": server.account, "account_key": server.account_key}
    with ContainerClient(f"{server.url}/{server.account}", "any", credential=named) as client:
        client.create_container()
    credentials = Credentials({"account_key": server.account_key})
    return Place("azure", f"{server.account}/any", server.url, credentials)


def _fill(place: Place) -> None:
    store = place.store()
    for key, body in OBJECTS.items():
        full = place.key("from/" + key)
        store.put(full, body, attributes=ATTRIBUTES, crc32c=crc32c(body))
    store.close()


_NUMBERS = count(1)


@pytest.mark.parametrize("relays", [0, 1], ids=["direct", "relay"])
@pytest.mark.parametrize("destination", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_any_store_to_any_other(
    kit: ClientKit,
    places: dict[str, Place],
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    destination: str,
    relays: int,
) -> None:
    for kind, prefix in (("s3", "AWS"), ("azure", "AZURE_STORAGE")):
        for name, value in (places[kind].credentials or {}).items():
            monkeypatch.setenv(f"{prefix}_{name.removeprefix('account_').upper()}", value)
    here, there = places[source], places[destination]
    target = f"to-{next(_NUMBERS)}/"
    job = TransferJob(
        here.location("from/", kit.SOURCE),
        there.location(target, kit.SINK),
        limits=Limits(chunk_mib=5),
    )
    client = kit.client(provisioner=InProcessProvisioner(RunRoot(kit.home.run_root)))
    plan = kit.relayed() if relays else kit.plan((kit.SOURCE, kit.SINK))
    result = client.run(job, plan=plan)
    assert (result.copied, result.failed) == (len(OBJECTS), 0)
    store = there.store()
    prefix = there.key(target)
    found = {info.key: info for info in store.list(prefix)}
    assert set(found) == {prefix + key for key in OBJECTS}
    keeps_metadata = "file" not in (source, destination)
    for key, body in OBJECTS.items():
        info, copied = read_object(store, prefix + key, max_bytes=len(body))
        assert copied == body, key
        assert not keeps_metadata or info.attributes == ATTRIBUTES, key
    assert list(store.list_uploads(prefix)) == []
    store.close()


def test_the_matrix_names_every_kind_that_a_transfer_can_reach() -> None:
    from skyplane_gateway.stores import registry

    assert set(KINDS) == set(registry._MODULES) - {"memory"}
