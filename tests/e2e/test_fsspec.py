"""`Location.fsspec` and `TransferResult.open` on emulators of three clouds.

s3fs holds botocore back, so the reads run in an environment of their own.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.e2e.places import UNAVAILABLE, Place
from tests.faults import azurite, fake_gcs, moto_server
from tests.packaging.environments import install, make_environment
from tests.transfer import samples

from skyplane_gateway.common.objects import Credentials
from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.model.location import Location

pytestmark = pytest.mark.e2e
REPOSITORY = Path(__file__).parents[2]
#: They do not go with the botocore of constraints/development.txt.
PINS = ("adlfs==2026.8.0", "fsspec==2026.9.0", "gcsfs==2026.10.1", "s3fs==2026.9.0")
RAW = os.urandom(3 << 20)
ROWS = [{"id": number, "name": f"n{number}"} for number in range(1000)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the extra `fsspec`."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    found = make_environment(tmp_path_factory.mktemp("fsspec") / "venv")
    install(found, *project["dependencies"], *project["optional-dependencies"]["fsspec"], *PINS)
    return found


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, Place]]:
    keys = Credentials({"access_key_id": "testing", "secret_access_key": "testing"})
    (tmp_path / "azure").mkdir()
    with ExitStack() as stack:
        try:
            gcs = stack.enter_context(fake_gcs.running(tmp_path / "gcs.log"))
            azure = stack.enter_context(azurite.running(tmp_path / "azure"))
        except UNAVAILABLE as error:
            pytest.skip(str(error))
        s3 = stack.enter_context(moto_server.running())
        made = {
            "s3": Place("s3", "bucket", s3, keys),
            "gcs": Place("gcs", fake_gcs.create_bucket(gcs, "bucket"), gcs),
            "azure": Place(
                "azure",
                f"{azure.account}/bucket",
                azure.url,
                Credentials({"account_key": azure.account_key}),
            ),
        }
        made["s3"].s3_client().create_bucket(Bucket="bucket")
        with made["azure"].container_client() as client:
            client.create_container()
        yield made


def fill(place: Place) -> None:
    table = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(ROWS), table)
    with closing(place.store()) as store:
        for name, body in (("raw.bin", RAW), ("table.parquet", table.getvalue())):
            store.put(place.key(f"in/{name}"), body)


def read(python: Path, given: list[Location], environment: dict[str, str]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [python, REPOSITORY / "tests/e2e/fsspec_reader.py"],
        input=json.dumps([asdict(place) for place in given]),
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": ":".join(
                str(REPOSITORY / one) for one in ("src", "gateway", "grids", "")
            ),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_three_clouds_and_files(python: Path, places: dict[str, Place], tmp_path: Path) -> None:
    places["file"] = Place("file", str(tmp_path / "files"))
    (tmp_path / "files").mkdir()
    for place in places.values():
        fill(place)
    variables = {
        f"KEYS_{name.upper()}": value
        for place in places.values()
        for name, value in (place.credentials or {}).items()
    }
    given = [place.location("in/", "") for place in places.values()]
    given = [
        replace(one, credential_ref="env:KEYS") if one.kind in ("s3", "azure") else one
        for one in given
    ]
    for found in read(python, given, variables):
        assert found["digest"] == hashlib.sha256(RAW).hexdigest()
        assert found["rows"] == ROWS
        assert found["names"] == ["raw.bin", "table.parquet", "written.txt"]


def test_a_missing_package_names_the_extra() -> None:
    if find_spec("s3fs"):
        pytest.skip("s3fs is installed here")
    with pytest.raises(MissingExtra, match=r"skyplane-orchestration\[fsspec\]"):
        Location("s3://bucket/key").fsspec()


def test_a_result_opens_a_copy_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    result = samples.result(destination=f"file://{tmp_path}/")
    with result.open("a.txt") as file:
        assert file.read() == b"a"
    with replace(result, destination=f"file://{tmp_path}/a.txt").open(mode="r") as file:
        assert file.read() == "a"
