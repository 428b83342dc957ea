"""Samples of rates in a directory and in a bucket: nothing is lost, and old ones are left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import boto3
import pytest
from tests.faults import moto_server

from skyplane_orchestration.errors import ConfigurationInvalid, NotFound, StoreError
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage import rate_samples
from skyplane_orchestration.storage.rate_samples import (
    OLDEST_DAYS,
    read_samples,
    read_sent_gb,
    require_learned_grid,
    write_samples,
    write_sent,
)

DAY_S = 86400.0
NOW_S = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
SAMPLE = EdgeMeasurement(
    "aws:us-east-1", "gcp:us-east4", 4.0, 64, 1, 30.0, 15_000_000_000, NOW_S, "achieved", 5.0
)
AMBIENT = CredentialSources()


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with moto_server.running() as url:
        yield url


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty place for a learned grid."""
    if request.param == "directory":
        return str(tmp_path / "made" / "on demand")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", request.getfixturevalue("moto_url"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    bucket = f"learned-{abs(hash(tmp_path))}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/grids/ours"


def read(place: str, now_unix_s: float = NOW_S) -> list[EdgeMeasurement]:
    return read_samples(place, AMBIENT, now_unix_s=now_unix_s)


def test_a_place_without_samples_is_empty(place: str) -> None:
    assert read(place) == []


def test_writers_at_the_same_time_lose_nothing(place: str) -> None:
    samples = [replace(SAMPLE, gbps=float(number)) for number in range(1, 13)]
    together = Barrier(4)

    def write(own: list[EdgeMeasurement]) -> list[bool]:
        together.wait()
        return [write_samples(place, [one], AMBIENT) for one in own]

    with ThreadPoolExecutor(4) as threads:
        written = [threads.submit(write, samples[first::4]) for first in range(4)]
        assert all(all(one.result()) for one in written)
    assert sorted(read(place), key=lambda one: one.gbps) == samples


def test_the_same_result_counts_once(place: str) -> None:
    assert write_samples(place, [SAMPLE], AMBIENT)
    assert not write_samples(place, [SAMPLE], AMBIENT)
    assert read(place) == [SAMPLE]


def test_samples_of_all_months_are_read_until_they_are_too_old(place: str) -> None:
    ages = (-0.5, 0, 20, 100, OLDEST_DAYS - 1, OLDEST_DAYS + 1, 400)
    for age in ages:
        write_samples(place, [replace(SAMPLE, at_unix_s=NOW_S - age * DAY_S)], AMBIENT)
    found = [(NOW_S - one.at_unix_s) / DAY_S for one in read(place)]
    assert found == [-0.5, 0, 20, 100, OLDEST_DAYS - 1]


def test_only_the_newest_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_samples, "MOST_FILES", 3)
    for age in range(40):
        write_samples(str(tmp_path), [replace(SAMPLE, at_unix_s=NOW_S - age * DAY_S)], AMBIENT)
    assert [(NOW_S - one.at_unix_s) / DAY_S for one in read(str(tmp_path))] == [0, 1, 2]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 2, "samples": []}'])
def test_a_file_that_cannot_be_understood_hides_no_other(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_samples(str(tmp_path), [SAMPLE], AMBIENT)
    (tmp_path / "samples/2026-11/20T000000Z-x.json").write_text(content)
    with caplog.at_level(logging.WARNING):
        assert read(str(tmp_path)) == [SAMPLE]
    assert "20T000000Z-x.json are left out" in caplog.text


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    for name in ("samples", "sent"):
        (tmp_path / name).write_text("a file")
    with pytest.raises(StoreError):
        write_samples(str(tmp_path), [SAMPLE], AMBIENT)
    with pytest.raises(StoreError):
        send(str(tmp_path), "1", 1.0)


# ---------------------------------------------------------------- what was sent

TO_GOOGLE, TO_AZURE = ("aws:us-east-1", "gcp:us-east4"), ("aws:eu-west-1", "azure:eastus")
FROM_AZURE = ("azure:eastus", "gcp:us-east4")


def send(
    place: str,
    epoch: str,
    gb: float,
    edge: tuple[str, str] = TO_GOOGLE,
    now_unix_s: float = NOW_S,
) -> None:
    sent_bytes = {edge: int(gb * 1e9)}
    write_sent(place, epoch, sent_bytes, AMBIENT, now_unix_s)


def sent_gb(place: str, now_unix_s: float = NOW_S) -> dict[str, float]:
    return read_sent_gb(place, AMBIENT, now_unix_s)


def test_what_was_sent_is_summed_by_cloud(place: str) -> None:
    assert sent_gb(place) == {}
    write_sent(place, "0", {}, AMBIENT, NOW_S)
    edges = {TO_GOOGLE: 2_000_000_000, TO_AZURE: 500_000_000, FROM_AZURE: 3_000_000_000}
    write_sent(place, "1", edges, AMBIENT, NOW_S)
    send(place, "2", 4.0)
    assert sent_gb(place) == {"aws": 6.5, "azure": 3.0}
    assert read(place) == [], "it is no rate"


def test_an_epoch_that_two_processes_have_followed_counts_once(place: str) -> None:
    for gb in (1.0, 5.0, 5.0, 3.0):
        send(place, "1", gb)
    assert sent_gb(place) == {"aws": 5.0}


def test_senders_at_the_same_time_lose_nothing(place: str) -> None:
    together = Barrier(4)

    def write(first: int) -> None:
        together.wait()
        for number in range(first, 12, 4):
            send(place, str(number), 2.0)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert sent_gb(place) == {"aws": 24.0}


def test_a_month_counts_whole_and_alone_in_utc(tmp_path: Path) -> None:
    place, moment = str(tmp_path), datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    for number, at_unix_s in enumerate((moment - 1, moment, moment + 29 * DAY_S)):
        send(place, str(number), 10.0**number, now_unix_s=at_unix_s)
    assert sent_gb(place, moment - DAY_S) == {"aws": 1.0}
    assert sent_gb(place) == {"aws": 110.0}
    assert sent_gb(place, moment + 30 * DAY_S) == {}


def test_all_files_of_a_month_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_samples, "MOST_FILES", 3)
    for number in range(10):
        send(str(tmp_path), str(number), 1.0)
    assert sent_gb(str(tmp_path)) == {"aws": 10.0}


def test_a_name_that_cannot_be_understood_hides_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    send(str(tmp_path), "1", 1.0)
    (tmp_path / "sent/2026-11/aws.much").write_text("")
    with caplog.at_level(logging.WARNING):
        assert sent_gb(str(tmp_path)) == {"aws": 1.0}
    assert "aws.much does not say what was sent" in caplog.text


@pytest.mark.parametrize(
    ("given", "says"), [("ftp://host/x", "ftp"), ("s3://", "s3"), (__file__, "is a file")]
)
def test_a_place_that_cannot_be(given: str, says: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=rf"(?s)learned_grid.*{says}"):
        require_learned_grid(given)


def test_a_bucket_that_is_not_there_is_no_empty_place(
    moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with pytest.raises(NotFound):
        read("s3://no-such-bucket-here/x")
