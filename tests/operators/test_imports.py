"""A DAG file is parsed often: imports of operators load no client, cloud SDK or solver."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"aiohttp", "boto3", "botocore", "cryptography", "dagster", "pyarrow", "scipy"}

CODE = """
import sys
from airflow.providers.common.compat.sdk import DAG, BaseOperator, TaskGroup
before = set(sys.modules)
from skyplane_orchestration.operators import skyplane_transfer_group
with DAG(dag_id="d", schedule=None):
    skyplane_transfer_group("g", source_url="s3://a/", destination_url="s3://b/")
print(*sorted(set(sys.modules) - before))
"""


def test_a_dag_with_a_group_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "skyplane_orchestration.operators.group" in loaded
    assert loaded.isdisjoint({*HEAVY, "skyplane_orchestration.client"})
