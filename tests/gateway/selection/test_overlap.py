"""Copies whose destination overlaps their source are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.selection.overlap import refuse_overlap

S3 = StoreSpec("s3", "b", region="us-east-1")
REFUSED = [
    ("a/", "a/x/"),
    ("a", "a/x"),
    ("a", "a"),
    ("a", "a/"),
    ("", ""),
    ("", "x"),
    ("/", "x/"),
]
FINE = [("a", "ab"), ("a/", "ab/"), ("a/x/", "a/"), ("a/x", ""), ("ab", "a")]


@pytest.mark.parametrize(("source", "destination"), REFUSED)
def test_a_copy_into_its_own_source_is_refused(source: str, destination: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"s3://b/.*(lies in the source|same place)"):
        refuse_overlap(S3, source, S3, destination, recursive=True)


def test_messages_name_locations_by_url() -> None:
    says = r"destination s3://b/copy lies in the source s3://b/,"
    with pytest.raises(ConfigurationInvalid, match=says):
        refuse_overlap(S3, "", S3, "copy", recursive=True)
    with pytest.raises(ConfigurationInvalid, match=r"s3://b/ and destination s3://b/ are the same"):
        refuse_overlap(S3, "", S3, "", recursive=True)
    files = StoreSpec("file", "/")
    with pytest.raises(ConfigurationInvalid, match="the same object, /no/where"):
        refuse_overlap(files, "no/where", files, "no/where", recursive=False)


@pytest.mark.parametrize(("source", "destination"), FINE)
def test_a_copy_beside_its_source_is_accepted(source: str, destination: str) -> None:
    refuse_overlap(S3, source, S3, destination, recursive=True)


@pytest.mark.parametrize(
    ("source", "destination", "same"),
    [("a/k", "a/k", True), ("a/k", "a/", True), ("k", "", True), ("a/k", "a/k2", False)],
)
def test_one_object(source: str, destination: str, same: bool) -> None:
    if same:
        with pytest.raises(ConfigurationInvalid, match="same object"):
            refuse_overlap(S3, source, S3, destination, recursive=False)
    else:
        refuse_overlap(S3, source, S3, destination, recursive=False)


@pytest.mark.parametrize(
    "other",
    [
        StoreSpec("s3", "c"),
        StoreSpec("s3", "b", endpoint_url="http://127.0.0.1:1"),
        StoreSpec("memory", "b"),
        StoreSpec("file", "/b"),
    ],
)
def test_other_stores_do_not_overlap(other: StoreSpec) -> None:
    refuse_overlap(S3, "a", other, "a", recursive=True)


def test_transfer_sides_are_compared_without_case_and_slash() -> None:
    one = StoreSpec("s3", "b", endpoint_url="http://HOST:1/")
    other = StoreSpec("s3", "b", endpoint_url="http://host:1", options=(("connections", "9"),))
    with pytest.raises(ConfigurationInvalid):
        refuse_overlap(one, "a", other, "a/b", recursive=True)


def test_files_are_compared_by_their_real_paths(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    whole, root = StoreSpec("file", "/"), StoreSpec("file", str(tmp_path))
    below = str(tmp_path).lstrip("/")
    with pytest.raises(ConfigurationInvalid):
        refuse_overlap(root, "data", whole, f"{below}/link/new", recursive=True)
    with pytest.raises(ConfigurationInvalid):
        refuse_overlap(root, "data/k", whole, f"{below}/link/", recursive=False)
    refuse_overlap(root, "data", whole, f"{below}/database", recursive=True)
    with pytest.raises(ConfigurationInvalid):
        refuse_overlap(whole, "", root, "data", recursive=True)
