"""What the README and the first pages show runs as it stands.

`tests/packaging/test_getting_started.py` follows the first pages from the install on. Here every
block runs in a process of its own against one S3 server, which holds every bucket that the block
names: the first bucket is filled, the second must end up equal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import dagster as dg
import pytest
from airflow.providers.common.compat.sdk import DAG
from dagster.components.testing import create_defs_folder_sandbox
from tests.docs.pages import Page
from tests.docs.places import CONTENT, Places
from tests.faults import moto_server

from skyplane_orchestration.dagster import SkyplaneTransferComponent
from skyplane_orchestration.dagster.components.scaffolder import RESOURCE

pytestmark = pytest.mark.long

README: Final = Page("README.md")
AIRFLOW: Final = Page("docs/getting-started/airflow.md")
DAGSTER: Final = Page("docs/getting-started/dagster.md")
INSTANCES: Final = Page("docs/getting-started/aws-instances.md")
PYTHON: Final = Page("docs/reference/python.md")

RUN_DAGS = """
import sys
from airflow.dag_processing.dagbag import DagBag
from airflow.utils.db import initdb

initdb()
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
assert len(bag.dags) == int(sys.argv[2]), "a block defines no DAG"
for dag in bag.dags.values():
    run = dag.test()
    assert run.state == "success", (dag.dag_id, run.state)
"""

MATERIALIZE = """
import runpy
import sys
from dagster import AssetsDefinition, Definitions, DagsterInstance, materialize

for file in sys.argv[1:]:
    names = runpy.run_path(file)
    definitions = [value for value in names.values() if isinstance(value, Definitions)]
    assert definitions, "the block has no Definitions"
    job = definitions[0].resolve_implicit_global_asset_job_def()
    with DagsterInstance.local_temp() as instance:
        assert job.execute_in_process(instance=instance).success
"""


@pytest.fixture
def s3_endpoint() -> Iterator[str]:
    with moto_server.running() as url:
        yield url


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
        "XDG_RUNTIME_DIR": str(tmp_path),
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


def run(command: list[str | Path], environment: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def written(folder: Path, texts: list[str], endpoint: str) -> Mapping[Path, Places]:
    """Each text in a file of its own, and the places that it names, filled."""
    folder.mkdir()
    found = {}
    for number, text in enumerate(texts):
        path = folder / f"block_{number}.py"
        path.write_text(text)
        found[path] = Places(endpoint, text)
    return found


def test_dags(environment: dict[str, str], s3_endpoint: str, tmp_path: Path) -> None:
    texts = [*README.tested("dag"), *AIRFLOW.tested("dag")]
    assert len(texts) == 2
    places = written(tmp_path / "dags", texts, s3_endpoint)
    folder = str(tmp_path / "dags")
    run([sys.executable, "-c", RUN_DAGS, folder, str(len(texts))], environment, tmp_path)
    for each in places.values():
        each.assert_copied()


def test_the_dag_for_instances_parses() -> None:
    """`tests/e2e/test_airflow_runs.py` runs such a DAG on fakes of the clouds."""
    (text,) = INSTANCES.tested("instances_dag")
    names: dict[str, object] = {}
    exec(text, names)
    dag = names["dag"]
    assert isinstance(dag, DAG)
    tasks = ("plan", "provision", "transfer", "teardown", "finish")
    assert set(dag.task_ids) == {f"copy.{task}" for task in tasks}


def test_assets(environment: dict[str, str], s3_endpoint: str, tmp_path: Path) -> None:
    texts = [*README.tested("asset"), *DAGSTER.tested("asset")]
    assert len(texts) == 2
    places = written(tmp_path / "assets", texts, s3_endpoint)
    run([sys.executable, "-c", MATERIALIZE, *places], environment, tmp_path)
    for each in places.values():
        each.assert_copied()


def test_component() -> None:
    (text,) = Page("docs/reference/dagster.md").tested("component")
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=SkyplaneTransferComponent)
        (path / "defs.yaml").write_text(text)
        with sandbox.load_component_and_build_defs(defs_path=path) as (_, defs):
            (asset,) = defs.assets or ()
    assert isinstance(asset, dg.AssetsDefinition)
    assert asset.key == dg.AssetKey("orders_paris")


def test_the_scaffold_writes_the_file_of_the_page() -> None:
    blocks = [block.text for block in Page("docs/reference/dagster.md").blocks()]
    assert [text for text in blocks if "@dg.definitions" in text] == [RESOURCE]


def test_python(environment: dict[str, str], s3_endpoint: str, tmp_path: Path) -> None:
    (text,) = PYTHON.tested("python")
    places = Places(s3_endpoint, text)
    said = run([sys.executable, "-c", text], environment, tmp_path)
    places.assert_copied()
    assert said.startswith(f"{len(CONTENT)} objects,")


def test_shell_of_the_readme(environment: dict[str, str], tmp_path: Path) -> None:
    (text,) = README.tested("shell")
    said = run(["bash", "-euo", "pipefail", "-c", text], environment, tmp_path)
    assert said.splitlines()[-1] == "hello"
    assert (tmp_path / "to" / "hello.txt").read_text() == "hello\n"
