"""The examples of docs/reference/semantics.md run, and print what the page shows.

S3 is versitygw, Google Cloud Storage fake-gcs-server, Azure Azurite, all found by the variables of
the clouds' own tools. A line of the page is a part of a printed line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.docs.pages import Page
from tests.e2e.places import UNAVAILABLE, Place, emulated
from tests.faults import fake_gcs

PAGE: Final = Page("docs/reference/semantics.md")
EXAMPLES: Final = [block.test for block in PAGE.blocks() if block.language == "bash"]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    try:
        with emulated(tmp_path_factory.mktemp("stores"), "bucket-a") as made:
            fake_gcs.create_bucket(made["gcs"].endpoint, "bucket-b")
            with made["azure"].named("account/box").container_client() as client:
                client.create_container()
            _fill(made["s3"])
            yield made
    except UNAVAILABLE as error:
        pytest.skip(str(error))


def _fill(s3: Place) -> None:
    """What the page says of `bucket-a`."""
    client = s3.s3_client()
    client.put_object(Bucket=s3.bucket, Key="tagged/x", Body=b"x", Tagging="colour=blue")
    for key in ("marks/empty", "marks/folder/"):
        client.put_object(Bucket=s3.bucket, Key=key, Body=b"")


@pytest.fixture
def environment(places: dict[str, Place], tmp_path: Path) -> dict[str, str]:
    for name in ("run", "config", "state"):
        (tmp_path / name).mkdir(mode=0o700)
    azure = places["azure"]
    account, _, _ = azure.bucket.partition("/")
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "COLUMNS": "300",
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_S3": places["s3"].endpoint,
        **places["s3"].environment,
        "STORAGE_EMULATOR_HOST": places["gcs"].endpoint,
        "AZURE_STORAGE_CONNECTION_STRING": (
            f"AccountName={account};AccountKey={azure.environment['AZURE_STORAGE_KEY']};"
            f"BlobEndpoint={azure.endpoint}/{account};"
        ),
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_page_shows(
    environment: dict[str, str], tmp_path: Path, name: str
) -> None:
    (script,) = PAGE.tested(name)
    (wanted,) = PAGE.tested(f"{name}_says")
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=here,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    printed = iter(done.stdout.splitlines())
    for line in wanted.splitlines():
        assert any(line in one for one in printed), f"{line!r} is not in:\n{done.stdout}"
