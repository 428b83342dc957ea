"""A DAG file that uses the operators is parsed often: what their import loads."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = ("aiohttp", "boto3", "botocore", "cryptography", "dagster", "pyarrow", "scipy")


def loaded_by(statements: str) -> set[str]:
    code = f"{statements}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_operators_load_no_cloud_and_no_solver() -> None:
    base = loaded_by("import airflow.providers.common.compat.sdk as s; s.BaseOperator, s.TaskGroup")
    loaded = loaded_by("import skyplane_orchestration.operators")
    assert "skyplane_orchestration.client" not in loaded
    assert (loaded - base).isdisjoint(HEAVY)


def test_a_group_in_a_dag_loads_no_cloud_and_no_solver() -> None:
    loaded = loaded_by(
        "from airflow.providers.common.compat.sdk import DAG\n"
        "from skyplane_orchestration.operators import skyplane_transfer_group\n"
        "with DAG(dag_id='d', schedule=None):\n"
        "    skyplane_transfer_group('g', source_url='s3://a/', destination_url='s3://b/')\n"
    )
    assert loaded.isdisjoint(("boto3", "botocore", "scipy", "pyarrow"))
