"""kill -9 of the lead, a source, a relay, a sink and the client, one after the other.

The data arrives whole all the same, nothing is left over, and little is sent twice. The
bytes are compared on the file system of the server, and counted by a proxy before it.

`SKYPLANE_SURVIVAL_SEED=N` chooses another run, in which other gateways are killed in another
order at other moments. The test prints them (`pytest -s`, or on failure). The runs are of
a thousand objects, 2 GB, with that seed and the two after it.

All carry the marker `soak`: `test_chain` kills every role in each ordinary run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from tests.e2e.survival.objects import ObjectSet, digests_below, fill, object_set
from tests.e2e.survival.run import Outcome, Scene, run
from tests.e2e.survival.stage import Proxy, kill_points
from tests.faults import versitygw

from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

SOURCE_BUCKET, DESTINATION_BUCKET = "survival-from", "survival-to"
SOURCE_PREFIX, DESTINATION_PREFIX = "data/", "copy/"

#: Bytes PUT before the store, over the bytes of the objects: at most.
MOST_SENT = 1.15

SEED = int(os.environ.get("SKYPLANE_SURVIVAL_SEED", "1"))


COUNT, TOTAL_BYTES, CHUNK_MIB = 1000, 2_000_000_000, 8


@dataclass(frozen=True)
class Store:
    """versitygw, the folder where it keeps buckets, and the proxy before it."""

    server: versitygw.Server
    folder: Path
    proxy: Proxy

    def client(self) -> S3Client:
        return boto3.client(
            "s3",
            endpoint_url=self.server.url,
            region_name="us-east-1",
            aws_access_key_id=self.server.access_key_id,
            aws_secret_access_key=self.server.secret_access_key,
            config=Config(request_checksum_calculation="when_required"),
        )

    def fill(self, objects: ObjectSet) -> dict[str, str]:
        client = self.client()
        client.create_bucket(Bucket=SOURCE_BUCKET)
        client.create_bucket(Bucket=DESTINATION_BUCKET)

        def put(key: str, body: bytes) -> None:
            client.put_object(Bucket=SOURCE_BUCKET, Key=SOURCE_PREFIX + key, Body=body)

        return fill(objects, put)

    def leftovers(self) -> list[str]:
        """Whatever is in the destination's bucket beside the copies."""
        uploads = self.client().list_multipart_uploads(Bucket=DESTINATION_BUCKET)
        left = [f"upload {row['Key']}" for row in uploads.get("Uploads", [])]
        bucket = self.folder / DESTINATION_BUCKET
        for path in bucket.rglob("*"):
            inner = path.relative_to(bucket)
            if path.is_file() and not inner.is_relative_to(DESTINATION_PREFIX):
                left.append(str(inner))
        return left


@pytest.fixture(scope="session")
def server_binary() -> str:
    """Found in the user's own home, before the tests replace it."""
    try:
        return str(versitygw.binary())
    except versitygw.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def store(
    server_binary: str,
    tmp_path: Path,
    kit: ClientKit,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Store]:
    monkeypatch.setenv("SKYPLANE_TEST_VERSITYGW", server_binary)
    folder = tmp_path / "store"
    folder.mkdir()
    with (
        versitygw.running(folder) as server,
        closing(Proxy(server.url, tmp_path)) as proxy,
    ):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_access_key)
        yield Store(server, folder, proxy)
    # The logs stay; gigabytes do not.
    shutil.rmtree(folder)


def plan_of(kit: ClientKit) -> TransferPlan:
    """Two paths, one through relays; so many gateways that one of each role can be spared.

    Of the sources two are: one leads, and then another does.
    """
    plan = kit.plan((kit.SOURCE, kit.RELAY, kit.SINK), (kit.SOURCE, kit.SINK), count=2)
    return replace(plan, instances={**plan.instances, kit.SOURCE: InstanceGroup("process", 3)})


def job_of(kit: ClientKit, store: Store) -> TransferJob:
    trusted = {"checksum": "trusted"}
    source = f"s3://{SOURCE_BUCKET}/{SOURCE_PREFIX}"
    destination = f"s3://{DESTINATION_BUCKET}/{DESTINATION_PREFIX}"
    return TransferJob(
        Location(source, kit.SOURCE, store.server.url, options=trusted),
        Location(destination, kit.SINK, store.proxy.url, options=trusted),
        limits=Limits(chunk_mib=CHUNK_MIB),
    )


def report(objects: ObjectSet, outcome: Outcome, sent_bytes: int) -> str:
    total_bytes = objects.total_bytes
    return (
        f"{len(objects.size_bytes)} objects, {total_bytes / 1e6:.1f} MB; killed:\n{outcome}\n"
        f"  PUT: {sent_bytes / 1e6:.1f} MB = {sent_bytes / total_bytes:.4f} times the data"
    )


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_a_transfer_survives_a_kill_of_every_role(
    kit: ClientKit, store: Store, seed: int, tmp_path: Path
) -> None:
    print(f"\nSKYPLANE_SURVIVAL_SEED={seed}")
    objects = object_set(seed, COUNT, TOTAL_BYTES)
    digests = store.fill(objects)
    points = kill_points(seed, objects.total_bytes)
    print(*points, sep="\n")
    job = job_of(kit, store)
    scene = Scene("survival", seed, plan_of(kit), job, points, store.proxy, tmp_path / "run")
    outcome = run(kit, scene)
    sent_bytes = store.proxy.put_bytes
    print(report(objects, outcome, sent_bytes))
    assert (outcome.result["state"], outcome.result["failed"]) == ("succeeded", 0)
    assert digests_below(store.folder / DESTINATION_BUCKET / DESTINATION_PREFIX) == digests
    assert store.leftovers() == []
    assert kit.home.traces() == []
    assert sent_bytes <= MOST_SENT * objects.total_bytes
