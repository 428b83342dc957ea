"""Runs the example DAG in this process and writes down what its tasks returned.

    python -m example_dags.demo_support.airflow_run OUTCOME.json

Airflow's settings come from the environment, which must hold before Airflow is imported:
`airflow_environment`. The file is written whatever the run's end: state of the run and of
each task, and the documents of plan, fleet and transfer.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from example_dags.demo_support.servers import DemoSite

GROUP: Final = "imagenet"

_EXAMPLES: Final = Path(__file__).resolve().parents[1]
_DAG_FILE: Final = _EXAMPLES / "sydney_to_paris.py"


def airflow_environment(site: DemoSite) -> dict[str, str]:
    """The site's environment with an Airflow of its own in the site's directory."""
    home = site.directory / "airflow"
    return {
        **{k: v for k, v in site.environment().items() if not k.startswith("AIRFLOW_")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(_EXAMPLES),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "PYTHONWARNINGS": "ignore",
    }


def run_example(site: DemoSite) -> dict[str, Any]:
    """Run the DAG in a process of its own; the document that it wrote.

    Raises RuntimeError when it ended without one.
    """
    environment = airflow_environment(site)
    outcome = site.directory / "outcome.json"
    migrated = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if migrated.returncode != 0:
        raise RuntimeError(f"airflow db migrate failed: {migrated.stderr[-2000:]}")
    subprocess.run(
        [sys.executable, "-m", __name__, str(outcome)],
        env=environment,
        cwd=_EXAMPLES.parent,
        check=False,
    )
    if not outcome.exists():
        raise RuntimeError("the DAG's process ended without an outcome; see its output above")
    document: dict[str, Any] = json.loads(outcome.read_text())
    return document


def _run(outcome: Path) -> None:
    dag = runpy.run_path(str(_DAG_FILE))["dag"]
    run = dag.test()
    tasks = {instance.task_id: instance for instance in run.get_task_instances()}
    document = {
        "state": str(run.state),
        "tasks": {task_id: str(instance.state) for task_id, instance in sorted(tasks.items())},
        **{
            name: tasks[f"{GROUP}.{name}"].xcom_pull(task_ids=f"{GROUP}.{name}")
            for name in ("plan", "provision", "transfer")
        },
    }
    outcome.write_text(json.dumps(document))


if __name__ == "__main__":
    os.chdir(_EXAMPLES.parent)
    _run(Path(sys.argv[1]))
