"""Mixed objects go from S3 to Google, to Azure and back to S3, with kill -9 on every hop.

The last bucket equals the first: keys, bytes, headers and metadata. Nothing of the project is
left in any bucket, and requests with bytes for the store are counted.

`SKYPLANE_SURVIVAL_SEED=N` chooses other kill points. The chain of a thousand objects, where
every role is killed on every hop, carries the marker `soak`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import requests
from tests.e2e.places import UNAVAILABLE, Place, emulated
from tests.e2e.survival.kills import ROLES, kill_points, run
from tests.e2e.survival.mixed_objects import CHUNK_BYTES, MixedObject, mixed_objects
from tests.faults.http_proxy import Exchange, running
from tests.faults.http_rules import Rule

from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SEED: Final = int(os.environ.get("SKYPLANE_SURVIVAL_SEED", "1"))

#: Requests with bytes for the store, over those that a copy needs: at most.
MOST_UPLOADS: Final = 1.15

#: Of the first bucket, and of the ends of the three hops; all of one length.
PREFIXES: Final = ("from/", "hop1/", "hop2/", "back/")
CHAIN: Final = ("s3", "gcs", "azure", "s3")

_TEMPORARY_PART: Final = re.compile(r"/\.skyplane/uploads/[0-9a-f]{32}/")
_HEADERS: Final = (
    "ContentType",
    "CacheControl",
    "ContentEncoding",
    "ContentLanguage",
    "ContentDisposition",
    "Metadata",
)


@dataclass(frozen=True)
class Scale:
    """How many objects, how slow the stores are, and who is killed on each hop."""

    count: int
    multipart: int
    put_delay_s: float
    roles: tuple[tuple[str, ...], ...]


SMALL: Final = Scale(120, 6, 0.2, (("lead",), ("source", "relay"), ("sink", "client")))
LARGE: Final = Scale(1000, 40, 0.1, (ROLES, ROLES, ROLES))


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, Place]]:
    """Asked for before `kit`, which hides the user's own programs."""
    folder = tmp_path / "stores"
    folder.mkdir()
    try:
        with emulated(folder, "chain") as made:
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


def found_in(client: S3Client, prefix: str) -> dict[str, tuple[bytes, dict[str, Any]]]:
    """Key below the prefix -> bytes and headers."""
    found = {}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="chain", Prefix=prefix):
        for row in page.get("Contents", ()):
            answer: Mapping[str, Any] = client.get_object(Bucket="chain", Key=row["Key"])
            answer["Metadata"].pop("skyplanesource", None)  # The mark of a copy.
            headers = {name: answer[name] for name in _HEADERS if answer.get(name)}
            found[row["Key"].removeprefix(prefix)] = answer["Body"].read(), headers
    return found


def names_in(place: Place) -> set[str]:
    """All names in a bucket, those of open uploads and of temporary objects among them."""
    if place.kind == "gcs":
        rows: list[str] = []
        query = {"fields": "items(name),nextPageToken"}
        while True:
            url = f"{place.endpoint}/storage/v1/b/{place.bucket}/o"
            page = requests.get(url, query, timeout=60).json()
            rows += [row["name"] for row in page.get("items", ())]
            if not (token := page.get("nextPageToken")):
                return set(rows)
            query["pageToken"] = token
    if place.kind == "azure":
        with place.container_client() as container:
            return set(container.list_blob_names())
    client = place.s3_client()
    uploads = client.list_multipart_uploads(Bucket=place.bucket).get("Uploads", ())
    names = {f"upload of {row['Key']}" for row in uploads}
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=place.bucket):
        names |= {row["Key"] for row in page.get("Contents", ())}
    return names


def uploads_of(rows: list[Exchange], folder: str) -> list[str]:
    """Keys of requests with bytes of objects; journals and markers of uploads have none."""
    keys = [row.written_key for row in rows]
    return [
        key
        for key in keys
        if _TEMPORARY_PART.search(key) or (key.startswith(folder) and "/.skyplane/" not in key)
    ]


def plan_of(kit: ClientKit, roles: tuple[str, ...]) -> TransferPlan:
    """Two paths, one through relays; one more gateway of each role that loses one."""
    plan = kit.plan((kit.SOURCE, kit.RELAY, kit.SINK), (kit.SOURCE, kit.SINK))
    lost = {
        kit.SOURCE: ("lead" in roles) + ("source" in roles),
        kit.RELAY: "relay" in roles,
        kit.SINK: "sink" in roles,
    }
    groups = {region: InstanceGroup("process", 1 + count) for region, count in lost.items()}
    return replace(plan, instances=groups)


def fill(place: Place, objects: list[MixedObject]) -> None:
    client = place.s3_client()
    for each in objects:
        client.put_object(Bucket=place.bucket, Key=each.key, Body=each.body, **each.headers)


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(SMALL, id="120-objects"),
        pytest.param(LARGE, id="1000-objects", marks=pytest.mark.soak),
    ],
)
def test_objects_come_back_equal_over_three_clouds(
    places: dict[str, Place],
    kit: ClientKit,
    scale: Scale,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for place in places.values():
        for name, value in place.environment.items():
            monkeypatch.setenv(name, value)
    print(f"\nSKYPLANE_SURVIVAL_SEED={SEED}")
    objects = mixed_objects(SEED, scale.count, scale.multipart, PREFIXES[0])
    fill(places["s3"], objects)
    total_bytes = sum(each.size_bytes for each in objects)
    needed = sum(each.least_uploads for each in objects)
    hops = zip(pairwise(CHAIN), pairwise(PREFIXES), scale.roles, strict=True)
    for number, ((source, target), (prefix, folder), roles) in enumerate(hops):
        here, there = places[source], places[target]
        rules = [
            Rule("delay", method, target, times=0, delay_s=scale.put_delay_s)
            for method, target in (("PUT", ""), ("POST", "^/upload/"))
        ]
        with running(there.endpoint, rules) as proxy:
            job = TransferJob(
                here.location(prefix, kit.SOURCE),
                there.location(folder, kit.SINK, proxy.url),
                limits=Limits(chunk_mib=CHUNK_BYTES >> 20),
            )
            points = kill_points(SEED + number, total_bytes, roles)
            words = ("tests", f"hop-{number}", f"seed-{SEED}")
            scratch = tmp_path / f"scratch{number}"
            result = run(kit, words, job, plan_of(kit, roles), points, proxy, scratch)
            uploads = uploads_of(proxy.log.exchanges, f"{there.bucket}/{folder}")
        print(f"{source} to {target}: {len(uploads)} uploads, {needed} needed")
        assert (result["state"], result["failed"]) == ("succeeded", 0)
        assert result["metadata_not_carried"] == 0
        wanted = {folder + each.key.removeprefix(PREFIXES[0]) for each in objects}
        left = {each.key for each in objects} if target == "s3" else set()
        assert names_in(there) == wanted | left
        assert kit.home.traces() == []
        assert needed <= len(uploads) <= MOST_UPLOADS * needed
    client = places["s3"].s3_client()
    first, last = found_in(client, PREFIXES[0]), found_in(client, PREFIXES[-1])
    assert len(first) == scale.count
    assert last == first
