"""When the store may copy objects of a job itself, and the reason where it may not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.storage.server_side_eligibility import why_not_server_side

AWS = Location("s3://from/", "aws:eu-west-3", credential_ref="profile:team")
JOB = TransferJob(AWS, replace(AWS, url="s3://to/"))


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)


def test_buckets_of_one_service_region_and_set_of_credentials() -> None:
    assert why_not_server_side(JOB) == ""


def test_a_compatible_server_whose_checksums_count() -> None:
    there: dict[str, Any] = {
        "endpoint_url": "http://127.0.0.1:9000",
        "options": {"checksum": "trusted"},
    }
    job = replace(JOB, source=replace(AWS, **there), destination=replace(AWS, **there))
    assert why_not_server_side(job) == ""


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"region": "aws:eu-west-1"}, "different regions"),
        ({"credential_ref": "profile:other"}, "different credentials"),
        ({"endpoint_url": "http://127.0.0.1:9000"}, "different endpoints"),
        ({"options": {"requester-pays": "true"}}, "requester-pays"),
        ({"options": {"anonymous": "true"}}, "anonymous"),
        ({"url": "gs://to/", "region": "gcp:europe-west9"}, "different services"),
        ({"url": "/data/", "region": ""}, "different services"),
    ],
)
@pytest.mark.parametrize("end", ["source", "destination"])
def test_ends_that_differ_or_are_special(changed: dict[str, Any], reason: str, end: str) -> None:
    job = JOB
    if end == "source":
        job = replace(JOB, source=replace(JOB.source, **changed))
    else:
        job = replace(JOB, destination=replace(JOB.destination, **changed))
    assert reason in why_not_server_side(job)


def test_a_server_whose_checksums_do_not_count() -> None:
    server = replace(AWS, endpoint_url="http://127.0.0.1:9000")
    assert "checksum" in why_not_server_side(TransferJob(server, replace(server, url="s3://to/")))


def test_stores_that_do_not_copy() -> None:
    blobs = Location("az://account/from/", "azure:westeurope")
    job = TransferJob(blobs, replace(blobs, url="az://account/to/"))
    assert "azure" in why_not_server_side(job)


def test_a_job_that_says_never() -> None:
    assert "never" in why_not_server_side(replace(JOB, server_side_copy="never"))
