"""What the README shows is run as it stands: the DAG, the asset and the commands.

How to install is run by tests/packaging/test_extras.py.

A block counts when a comment directly before it says so, such as `<!-- test: dag -->`.
All run in processes of their own against one S3 server of this test, which holds every
bucket that the block names; the first bucket is filled, the second must end up equal.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

BLOCK = re.compile(
    r"<!-- test: (?P<name>\w+) -->\s*```\w+\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
URL = re.compile(r"s3://(?P<bucket>[a-z0-9.-]{3,})/(?P<prefix>[^\"'\s]*)")
#: More than one page of small objects would prove no more; one is larger than a chunk.
CONTENT = {"a.bin": b"a" * (17 << 20), "b/c.txt": b"c", "b/empty": b"", "_SUCCESS": b"done"}

RUN_DAGS = """
import sys
from airflow.dag_processing.dagbag import DagBag

bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
assert bag.dags, "the block defines no DAG"
for dag in bag.dags.values():
    run = dag.test()
    assert run.state == "success", (dag.dag_id, run.state)
"""

MATERIALIZE = """
import runpy
import sys
from dagster import AssetsDefinition, Definitions, DagsterInstance, materialize

names = runpy.run_path(sys.argv[1])
definitions = [value for value in names.values() if isinstance(value, Definitions)]
assert definitions, "the block has no Definitions"
job = definitions[0].resolve_implicit_global_asset_job_def()
with DagsterInstance.local_temp() as instance:
    assert job.execute_in_process(instance=instance).success
"""


def blocks_of(text: str) -> dict[str, list[str]]:
    """Tested blocks by name, in their order."""
    found: dict[str, list[str]] = {}
    for match in BLOCK.finditer(text):
        found.setdefault(match["name"], []).append(match["text"])
    return found


@pytest.fixture(scope="session")
def blocks(repository: Path) -> dict[str, list[str]]:
    return blocks_of((repository / "README.md").read_text())


@pytest.fixture
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def environment(s3_endpoint: str, tmp_path: Path) -> dict[str, str]:
    """What a reader's shell would hold: credentials, an endpoint, a fleet secret."""
    inherited = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    connection = {
        "conn_type": "skyplane",
        "password": "5c" * 32,
        "extra": {"deployment": "readme", "provisioner": "local"},
    }
    return {
        **inherited,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": s3_endpoint,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SKYPLANE_DEFAULT": json.dumps(connection),
        "DAGSTER_HOME": str(tmp_path),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


class Buckets:
    """The buckets that a block names: the first is the source, the second the destination."""

    def __init__(self, endpoint: str, text: str) -> None:
        self._prefixes = {match["bucket"]: match["prefix"] for match in URL.finditer(text)}
        source, self._destination = list(self._prefixes)[:2]
        self._s3 = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        for name in self._prefixes:
            self._s3.create_bucket(Bucket=name)
        for key, body in CONTENT.items():
            self._s3.put_object(Bucket=source, Key=self._prefixes[source] + key, Body=body)

    def assert_copied(self) -> None:
        bucket = self._destination
        prefix = self._prefixes[bucket]
        listed = self._s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
        keys = [entry["Key"].removeprefix(prefix) for entry in listed]
        objects = {
            key: self._s3.get_object(Bucket=bucket, Key=prefix + key)["Body"].read()
            for key in keys
            if not key.startswith(".skyplane/")
        }
        assert objects == CONTENT


def run(command: list[str | Path], environment: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def the_only(blocks: dict[str, list[str]], name: str) -> str:
    (text,) = blocks[name]
    return text


def test_every_kind_of_block_is_there(blocks: dict[str, list[str]]) -> None:
    assert blocks.keys() == {"install", "cp", "commands", "python", "dag", "asset"}


def test_it_says_in_five_lines_what_it_is(repository: Path) -> None:
    _, said, *_ = (repository / "README.md").read_text().split("\n\n")
    assert len(said.splitlines()) == 5


def test_snippets_are_as_short_as_promised(blocks: dict[str, list[str]]) -> None:
    lengths = {name: len(the_only(blocks, name).splitlines()) for name in blocks}
    shortest = {"install": 3, "cp": 2, "commands": 2, "python": 5, "dag": 10, "asset": 10}
    assert lengths == shortest


def test_it_is_read_in_one_go(repository: Path) -> None:
    assert len((repository / "README.md").read_text().splitlines()) < 100


def test_dag(
    blocks: dict[str, list[str]], environment: dict[str, str], s3_endpoint: str, tmp_path: Path
) -> None:
    text = the_only(blocks, "dag")
    buckets = Buckets(s3_endpoint, text)
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "readme_dag.py").write_text(text)
    run([sys.executable, "-m", "airflow", "db", "migrate"], environment, tmp_path)
    run([sys.executable, "-c", RUN_DAGS, tmp_path / "dags"], environment, tmp_path)
    buckets.assert_copied()


def test_asset(
    blocks: dict[str, list[str]], environment: dict[str, str], s3_endpoint: str, tmp_path: Path
) -> None:
    text = the_only(blocks, "asset")
    buckets = Buckets(s3_endpoint, text)
    (tmp_path / "readme_asset.py").write_text(text)
    run([sys.executable, "-c", MATERIALIZE, tmp_path / "readme_asset.py"], environment, tmp_path)
    buckets.assert_copied()


def test_python(
    blocks: dict[str, list[str]], environment: dict[str, str], s3_endpoint: str, tmp_path: Path
) -> None:
    text = the_only(blocks, "python")
    buckets = Buckets(s3_endpoint, text)
    said = run([sys.executable, "-c", text], environment, tmp_path)
    buckets.assert_copied()
    assert said.startswith(f"{len(CONTENT)} objects,")


def test_cp(blocks: dict[str, list[str]], environment: dict[str, str], tmp_path: Path) -> None:
    environment = {**environment, "XDG_RUNTIME_DIR": str(tmp_path)}
    text = the_only(blocks, "cp")
    said = run(["bash", "-euo", "pipefail", "-c", text], environment, tmp_path)
    assert said.splitlines()[-1] == "hello"
    assert (tmp_path / "to" / "hello.txt").read_text() == "hello\n"


def test_commands(
    blocks: dict[str, list[str]], environment: dict[str, str], repository: Path
) -> None:
    """Both as they stand; the tests are told by the environment to be one file of themselves."""
    environment = {**environment, "PYTEST_ADDOPTS": "-p no:cacheprovider tests/test_units.py"}
    environment["WORKERS"] = "1"
    said = run(
        ["bash", "-euo", "pipefail", "-c", the_only(blocks, "commands")], environment, repository
    )
    assert "0 differences" in said
    assert "left running: 0" in said
    assert " passed" in said


def test_blocks_are_found_by_their_comment() -> None:
    text = "x\n<!-- test: dag -->\n```python\na = 1\n```\n```python\nb = 2\n```\n"
    assert blocks_of(text) == {"dag": ["a = 1\n"]}
