"""From S3 to Google Cloud Storage: the command, real gateways, an emulator."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.e2e.test_cli_cp import answer_of, orch_here
from tests.faults import fake_gcs, strict_gcs

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.gcs.store import GcsStore
from skyplane_gateway.stores.readback import has_attributes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Home, S3Server

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@pytest.fixture
def google(tmp_path: Path) -> Iterator[strict_gcs.StrictGcs]:
    try:
        with (
            fake_gcs.running(tmp_path / "fake-gcs.log") as url,
            # A journal is written a few times at once; retries of that would take the time here.
            strict_gcs.running(url, write_s=0.0) as proxy,
        ):
            yield proxy
    except fake_gcs.Unavailable as error:
        pytest.skip(str(error))


def test_objects_go_from_s3_to_google(
    home: Home, servers: tuple[S3Server, S3Server], google: strict_gcs.StrictGcs
) -> None:
    """To a bucket of a colder class, from a store that refuses what the service refuses."""
    here, _ = servers
    source = here.make_bucket("to-google")
    objects = {"large": os.urandom(12 * MIB + 7), "empty": b"", "deep/two words": b"x"}
    objects |= {f"small/{number}": os.urandom(number + 1) for number in range(20)}
    here.fill(source, "p/", objects)
    bucket = fake_gcs.create_bucket(google.url)
    google.default_classes[bucket] = "COLDLINE"

    # The region of the bucket is looked up, and the emulator is the environment's.
    at_google = dataclasses.replace(home, more={"STORAGE_EMULATOR_HOST": google.url})
    url = f"gs://{bucket}/q/"
    to_google = orch_here(
        at_google, "cp", "-r", f"s3://{source}/p/", url, "--src-endpoint", here.endpoint,
        "--chunk-mib", "5", "--gateways", "always", "--json",
    )  # fmt: skip
    result = answer_of(to_google)
    assert (result["copied"], result["failed"]) == (len(objects), 0)
    assert google.composed == [3]
    assert google.class_of(bucket, "q/large") == "COLDLINE"
    store = GcsStore(StoreSpec("gcs", bucket, google.url))
    attributes = ObjectAttributes(content_type="text/x-test", metadata=(("owner", "somebody"),))
    assert {info.key for info in store.list("")} == {f"q/{key}" for key in objects}
    for key in ("large", "empty", "small/3"):
        assert has_attributes(store.head(f"q/{key}"), attributes), "beside the mark of a copy"
    assert list(store.list_uploads("")) == []

    ends = (f"s3://{source}/p/", url, "--src-endpoint", here.endpoint)
    report = answer_of(orch_here(at_google, "verify", "-r", "--extra", *ends, "--json"))
    assert (report["is_equal"], report["equal"], report["extra"]) == (True, len(objects), 0)
    # Google's checksums count, and moto's do not.
    assert report["read_bytes"] == sum(map(len, objects.values()))
    assert home.traces() == []


def test_the_service_itself_copies_large_objects_between_its_buckets(
    home: Home, google: strict_gcs.StrictGcs
) -> None:
    there = fake_gcs.create_bucket(google.url), fake_gcs.create_bucket(google.url)
    google.default_classes[there[1]] = "NEARLINE"
    source, destination = (GcsStore(StoreSpec("gcs", bucket, google.url)) for bucket in there)
    attributes = ObjectAttributes(content_type="text/x-test", metadata=(("owner", "somebody"),))
    bodies = {"large": os.urandom(12 * MIB + 7), "small": b"sent whole"}
    written = {key: source.put(key, body, attributes=attributes) for key, body in bodies.items()}
    at_google = dataclasses.replace(home, more={"STORAGE_EMULATOR_HOST": google.url})
    ends = (f"gs://{there[0]}/", f"gs://{there[1]}/")
    copied = orch_here(at_google, "cp", "-r", *ends, "--chunk-mib", "5", "--json")
    result = answer_of(copied)
    assert (result["copied"], result["server_side"], result["warnings"]) == (2, 1, [])
    for key, info in written.items():
        found = destination.head(key)
        assert (found.crc32c, found.attributes) == (info.crc32c, attributes)
    assert list(destination.list_uploads("")) == []
    source.close()
    destination.close()
