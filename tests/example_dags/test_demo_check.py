"""The demo's data set, and that its check finds every kind of damage."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_dags.demo_support.dataset import MARKER, DataSet, demo_data_set
from example_dags.demo_support.servers import DemoSite, demo_site
from example_dags.demo_support.verify import corrupt_one, left_running, relayed_share, verify

DATA = DataSet({"a.bin": 1000, "sub/b + c%20ü": 10, "empty": 0, MARKER: 2})


def test_contents_follow_from_seed_and_key() -> None:
    again = DataSet(dict(DATA.sizes))
    assert again.body("a.bin") == DATA.body("a.bin")
    assert len(DATA.body("a.bin")) == 1000
    assert DataSet(DATA.sizes, seed="other").body("a.bin") != DATA.body("a.bin")
    assert DATA.body("a.bin")[:10] != DATA.body("sub/b + c%20ü")
    assert DATA.digest("empty") == hashlib.sha256(b"").hexdigest()


def test_demo_data_set_exercises_what_it_should() -> None:
    data = demo_data_set()
    assert sum(size >= 16 << 20 for size in data.sizes.values()) == 12
    assert sum(size == 8192 for size in data.sizes.values()) == 400
    assert 0 in data.sizes.values()
    assert list(data.sizes)[-1] == MARKER
    for character in " +%ö東":
        assert any(character in key for key in data.sizes)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoSite]:
    with demo_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def copied(site: DemoSite) -> DemoSite:
    """The data set as a transfer would have left it, and nothing else."""
    client = site.destination.client()
    listed = client.list_objects_v2(Bucket=site.destination.bucket).get("Contents", [])
    for row in listed:
        client.delete_object(Bucket=site.destination.bucket, Key=row["Key"])
    for upload in client.list_multipart_uploads(Bucket=site.destination.bucket).get("Uploads", []):
        client.abort_multipart_upload(
            Bucket=site.destination.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
        )
    DATA.write(client, site.destination.bucket, site.destination.prefix)
    return site


def test_a_complete_copy_passes(copied: DemoSite) -> None:
    checked = verify(DATA, copied.destination)
    assert checked.differences == ()
    assert str(checked) == "verified: 4 objects, 1012 bytes, 0 differences"


def test_a_flipped_bit_is_found(copied: DemoSite) -> None:
    key = corrupt_one(DATA, copied.destination)
    assert f"different content: {key}" in verify(DATA, copied.destination).differences


def test_a_missing_object_is_found(copied: DemoSite) -> None:
    end = copied.destination
    end.client().delete_object(Bucket=end.bucket, Key=end.prefix + "empty")
    assert verify(DATA, end).differences == (f"missing: {end.prefix}empty",)


def test_an_unexpected_object_is_found(copied: DemoSite) -> None:
    end = copied.destination
    end.client().put_object(Bucket=end.bucket, Key="elsewhere", Body=b"")
    assert verify(DATA, end).differences == ("unexpected: elsewhere",)


def test_an_object_that_came_after_the_marker_is_found(copied: DemoSite) -> None:
    end = copied.destination
    key = end.prefix + "a.bin"
    end.client().put_object(Bucket=end.bucket, Key=key, Body=DATA.body("a.bin"))
    assert verify(DATA, end).differences == (f"written after {MARKER}: a.bin",)


def test_an_open_upload_is_found(copied: DemoSite) -> None:
    end = copied.destination
    end.client().create_multipart_upload(Bucket=end.bucket, Key="begun")
    assert verify(DATA, end).differences == ("an upload was left open: begun",)


def test_relayed_share() -> None:
    edges = [
        {"src": "s", "dst": "r", "sent_bytes": 75},
        {"src": "r", "dst": "t", "sent_bytes": 75},
        {"src": "s", "dst": "t", "sent_bytes": 25},
    ]
    assert relayed_share({"edges": edges}, "s", "t") == 0.75
    assert relayed_share({"edges": []}, "s", "t") == 0.0


def test_a_gateway_that_still_runs_is_found(site: DemoSite) -> None:
    """Any process that names the gateway and the demo's directory counts."""
    place = str(site.run_root / "fleet" / "config.json")
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "skyplane_gateway", "--config", place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"  # Its command line is in place by now.
        assert [line.split()[0] for line in left_running(site)] == [str(process.pid)]
    finally:
        process.communicate()
    assert left_running(site) == ()


def test_environment_keeps_everything_in_the_site(site: DemoSite) -> None:
    environment = site.environment()
    for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        assert Path(environment[name]).is_relative_to(site.directory)
    assert site.run_root.is_relative_to(environment["XDG_RUNTIME_DIR"])
    assert os.environ["PATH"] == environment["PATH"]
