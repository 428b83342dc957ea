"""URLs of every kind: what upstream's users write, read as this project documents it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from skyplane_orchestration.errors import InvalidLocation
from skyplane_orchestration.model.location import Location, is_url_or_path

AZURE = "https://account.blob.core.windows.net"
AZURE_DFS = "https://account.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("url", "cloud", "kind", "bucket", "key"),
    [
        ("/", "local", "file", "/", ""),
        ("/tmp", "local", "file", "/", "tmp"),
        ("/tmp/", "local", "file", "/", "tmp/"),
        ("/a//b/../c/", "local", "file", "/", "a/c/"),
        ("file:///tmp/x", "local", "file", "/", "tmp/x"),
        ("file:///", "local", "file", "/", ""),
        ("s3://bucket", "aws", "s3", "bucket", ""),
        ("s3://bucket/", "aws", "s3", "bucket", ""),
        ("s3://bucket/key", "aws", "s3", "bucket", "key"),
        ("s3://bucket//key", "aws", "s3", "bucket", "/key"),
        ("s3://bucket/a/../b", "aws", "s3", "bucket", "a/../b"),
        ("s3://bucket/a%2Bb c+d?e#f", "aws", "s3", "bucket", "a%2Bb c+d?e#f"),
        ("gs://bucket", "gcp", "gcs", "bucket", ""),
        ("gs://bucket/", "gcp", "gcs", "bucket", ""),
        ("gs://bucket/key", "gcp", "gcs", "bucket", "key"),
        (f"{AZURE}/container", "azure", "azure", "account/container", ""),
        (f"{AZURE}/container/", "azure", "azure", "account/container", ""),
        (f"{AZURE}/container/key/path", "azure", "azure", "account/container", "key/path"),
        (f"{AZURE}/container/a%2Bb%20c", "azure", "azure", "account/container", "a+b c"),
        ("azure://account/container", "azure", "azure", "account/container", ""),
        ("azure://account/container/", "azure", "azure", "account/container", ""),
        ("azure://account/container/key/path", "azure", "azure", "account/container", "key/path"),
        ("az://account/container/key", "azure", "azure", "account/container", "key"),
        ("s3a://bucket/a%2Bb", "aws", "s3", "bucket", "a%2Bb"),
        ("s3n://bucket", "aws", "s3", "bucket", ""),
        ("gcs://bucket/key", "gcp", "gcs", "bucket", "key"),
        (f"{AZURE_DFS}/container/a%2Bb%20c/", "azure", "azure", "account/container", "a+b c/"),
        ("abfss://box@account.dfs.core.windows.net", "azure", "azure", "account/box", ""),
        ("abfss://box@account.dfs.core.windows.net/", "azure", "azure", "account/box", ""),
        ("abfs://$web@account.dfs.core.windows.net/a", "azure", "azure", "account/$web", "a"),
        ("wasbs://box@account.blob.core.windows.net/a/b", "azure", "azure", "account/box", "a/b"),
        (
            "wasb://box@account.blob.core.windows.net/x%20y",
            "azure",
            "azure",
            "account/box",
            "x%20y",
        ),
        # As lineage names datasets, with and without the suffix.
        ("wasbs://box@account.dfs.core.windows.net/me@x", "azure", "azure", "account/box", "me@x"),
        ("wasbs://box@account/key", "azure", "azure", "account/box", "key"),
    ],
)
def test_urls(url: str, cloud: str, kind: str, bucket: str, key: str) -> None:
    location = Location(url)
    assert (location.cloud, location.kind, location.bucket, location.key) == (
        cloud,
        kind,
        bucket,
        key,
    )


#: The forms of names of access points (AWS, "Referencing access points", 2026-11-26).
ACCESS_POINTS = [
    "arn:aws:s3:eu-west-1:123456789012:accesspoint/name",
    "arn:aws:s3:eu-west-1:123456789012:accesspoint:name",
    "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint/name",
    "arn:aws-us-gov:s3:us-gov-west-1:123456789012:accesspoint/name",
    "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap",
    "arn:aws:s3-object-lambda:us-west-2:123456789012:accesspoint/name",
    "arn:aws:s3-outposts:us-west-2:123456789012:outpost/op-01234567890123456/accesspoint/name",
    "arn:aws:s3-outposts:us-west-2:123456789012:outpost:op-01234567890123456:accesspoint:name",
    "name-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias",
]


@pytest.mark.parametrize("key", ["", "key", "folder/", "a/b c:d/e", "/x"])
@pytest.mark.parametrize("name", ACCESS_POINTS)
def test_names_of_access_points(name: str, key: str) -> None:
    """Their own slashes begin no key."""
    location = Location(f"s3://{name}/{key}")
    assert (location.kind, location.bucket, location.key) == ("s3", name, key)
    assert Location(location.url_of(key)) == location
    assert Location(f"s3://{name}").bucket == name


def test_a_template_is_checked_after_rendering() -> None:
    place = Location("{{ params.url }}", "{{ params.region }}", "{% if x %}http://a{% endif %}")
    assert Location.from_dict(place.to_dict()) == place
    assert place.url == "{{ params.url }}"
    assert Location("file://{{ params.folder }}/").url == "file://{{ params.folder }}/"


def test_an_unrendered_template_is_no_location() -> None:
    with pytest.raises(InvalidLocation, match=r"write \./\{\{ x \}\}/a for a file"):
        _ = Location("{{ x }}/a").kind


def test_a_path_with_double_braces_is_a_path() -> None:
    for path in ("./{{x}}.txt", "/tmp/{{x}}.txt", "out/{%x%}.txt", "{x}.txt"):
        assert Location(path).url == f"file://{Path(path).absolute()}"


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    location = Location("data/in.csv")
    monkeypatch.chdir("/")
    assert location.url == f"file://{tmp_path}/data/in.csv"
    assert location.key == f"{tmp_path}/data/in.csv".lstrip("/")


def test_home_is_expanded_and_a_folder_stays_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert Location("~/data/").key == "home/somebody/data/"
    assert Location(".").key == os.getcwd().lstrip("/") + "/"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://", "names no bucket"),
        ("gs:///key", "names no bucket"),
        ("az://account", "account and container"),
        ("az://account/", "account and container"),
        ("az:///container/", "account and container"),
        (f"{AZURE}/", "names no container"),
        ("https://example.com/bucket/key", "endpoint in"),
        ("https://[", "not a URL"),
        ("ftp://host/file", "scheme that is not known"),
        ("://x", "scheme that is not known"),
        ("file://relative/path", "absolute path"),
        ("", "write . for the current folder"),
        ("-", "write ./- for a file"),
        ("s3://minio:9000/bucket/key", "'minio:9000' in .* is not a bucket name"),
        ("s3://two words/key", "is not a bucket name"),
        ("s3://arn:aws:s3:::bucket/key", "no ARN of an access point"),
        ("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/", "no ARN of an access point"),
        ("a:dst", "write ./a:dst for a file"),
        ("minio:bucket/key", "write ./minio:bucket/key for a file, or s3://"),
        ("C:\\data", "write ./"),
        ("s3:/src", "write s3://src"),
        ("s3:src/a:b/", "write s3://src/a:b/"),
        ("S3:/src", "write s3://src"),
        ("gs:/b/k", "write gs://b/k"),
        ("file:/tmp/x", "write file:///path"),
        ("S3://b/k", "write s3://b/k"),
        ("S3A://b/k", "write s3a://b/k"),
        ("s3a:/b/k", "write s3a://b/k"),
        ("abfss://box/k", "abfss://container@account.dfs.core.windows.net/path"),
        ("abfss://@account.dfs.core.windows.net/k", "names no container"),
        ("abfss://box@account.example.net/k", "'account.example.net'.* no Azure account"),
        ("abfss:/box@account/k", "write abfss://box@account/k"),
        ("http://minio:9000/b/k", "endpoint in"),
    ],
)
def test_an_invalid_location_is_refused_with_a_reason(url: str, says: str) -> None:
    with pytest.raises(InvalidLocation, match=says):
        Location(url)


@pytest.mark.parametrize(
    "path", ["./a:dst", "../a:dst", "/a:dst", "~/a:dst", "folder/a:dst", "./-"]
)
def test_a_path_may_have_a_colon_or_a_hyphen(path: str) -> None:
    assert Location(path).kind == "file"
    assert Location(path).url.endswith(path.removeprefix("..").lstrip(".~"))


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("s3a://me:hush@b/k", ""),
        ("ftp://me:hush@host/k", ""),
        ("s3://b/", "http://me:hush@host:9000"),
        ("s3://b/", "https://hush@host"),
        ("s3://me:hush@b/k", ""),
        ("abfss://me:hush@account.dfs.core.windows.net/k", ""),
        ("wasbs://box@me:hush@account.blob.core.windows.net/k", ""),
        ("gs://me:hush@b/k", ""),
        ("az://me:hush@account/container/k", ""),
        (AZURE.replace("://", "://me:hush@") + "/container/k", ""),
        (f"{AZURE}/container/k?sv=2024&sig=hush", ""),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(url: str, endpoint: str) -> None:
    """Locations appear in logs, results and XCom."""
    with pytest.raises(InvalidLocation, match="by a reference") as caught:
        Location(url, endpoint_url=endpoint)
    assert "hush" not in str(caught.value)


def test_a_key_may_have_an_at_or_a_question_mark() -> None:
    assert Location("s3://b/me@home?x").key == "me@home?x"
    assert Location(f"{AZURE}/container/me@home%3Fx").key == "me@home?x"


@pytest.mark.parametrize("endpoint", ["localhost:9000", "ftp://host", "http://", "http://["])
def test_an_endpoint_is_an_http_address(endpoint: str) -> None:
    with pytest.raises(InvalidLocation):
        Location("s3://b/", endpoint_url=endpoint)


def test_a_region_tag_is_checked_and_cleaned() -> None:
    assert Location("s3://b/", " aws:eu-west-3\n").region == "aws:eu-west-3"
    assert Location("s3://b/", "local:rack").cloud == "local"
    with pytest.raises(InvalidLocation, match="cloud:region"):
        Location("s3://b/", "eu-west-3")


@given(st.text(min_size=1).filter(lambda key: not key.startswith("/")))
def test_a_key_is_taken_literally(key: str) -> None:
    for scheme in ("s3", "gs"):
        location = Location(f"{scheme}://bucket/{key}")
        assert location.key == key
        assert Location(location.url_of(key)) == location
    azure = Location(f"az://account/container/{key}")
    assert azure.key == key
    assert Location(azure.url_of(key)) == azure


@pytest.mark.parametrize(
    "root",
    [
        "s3a://bucket",
        "gcs://bucket",
        "azure://account/container",
        "abfss://box@account.dfs.core.windows.net",
        "wasbs://box@account",
        f"{AZURE}/container",
        f"{AZURE_DFS}/container",
    ],
)
def test_keys_are_shown_in_the_spelling_of_the_user(root: str) -> None:
    location = Location(f"{root}/in/")
    assert location.url_of("in/x").startswith(f"{root}/in/x")
    key = "in/a b%20?#@é"
    again = Location(location.url_of(key))
    assert (again.kind, again.bucket, again.key) == (location.kind, location.bucket, key)


def test_the_same_place_with_its_region_known() -> None:
    location = Location("s3://b/k", "", "http://h:1", "env:X", {"checksum": "sent"})
    assert location.at("aws:eu-west-3") == Location(
        "s3://b/k", "aws:eu-west-3", "http://h:1", "env:X", {"checksum": "sent"}
    )
    assert hash(location) == hash(Location.from_dict(location.to_dict()))


def test_options_are_a_copy() -> None:
    options = {"checksum": "sent"}
    location = Location("s3://b/k", options=options)
    options["checksum"] = "none"
    assert location.options == {"checksum": "sent"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://b", True),
        ("/data", True),
        ("./data", True),
        ("~/data", True),
        ("data", True),
        ("aws:data/x", True),
        ("aws:us-east-1", False),
        ("local:here", False),
    ],
)
def test_a_region_tag_is_told_from_a_path(text: str, expected: bool) -> None:
    assert is_url_or_path(text) is expected
