"""Runs the example DAG in this process and writes down what its tasks returned.

    python -m example_dags.demo_support.airflow_run OUTCOME.json

Airflow's settings come from the environment, which must hold before Airflow is imported:
`airflow_environment`. The file is written whatever the run's end; see `runner.Outcome`.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from example_dags.demo_support.follow import follow
from example_dags.demo_support.servers import DemoSite

GROUP: Final = "imagenet"

_EXAMPLES: Final = Path(__file__).resolve().parents[1]
#: Lines of the log that the demo shows: the beginning of a task, and what our operators say.
_SHOWN: Final = re.compile(
    r"^\S+ \[(?:info|warning|error) *\] (?:"
    r"\[DAG TEST\] starting (?P<task>task_id=\S+)"
    r"|(?P<said>.*?) *\[airflow\.task\.operators\.skyplane_orchestration\.)"
)

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
        "NO_COLOR": "1",
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
    command = [sys.executable, "-m", __name__, str(outcome)]
    follow(command, environment, _EXAMPLES.parent, site.log_path, _shown)
    if not outcome.exists():
        log = site.log_path.read_text(errors="replace")
        raise RuntimeError(f"the DAG's process ended without an outcome:\n{log[-4000:]}")
    document: dict[str, Any] = json.loads(outcome.read_text())
    return document


def _shown(line: str) -> str | None:
    found = _SHOWN.match(line)
    return (found["task"] or found["said"]).strip() if found else None


def _run(outcome: Path) -> None:
    dag = runpy.run_path(str(_DAG_FILE))["dag"]
    run = dag.test()
    tasks = {instance.task_id: instance for instance in run.get_task_instances()}
    returned = {
        name: tasks[f"{GROUP}.{name}"].xcom_pull(task_ids=f"{GROUP}.{name}")
        for name in ("plan", "provision", "transfer")
    }
    fleet = returned["provision"] or {"key": "", "gateways": []}
    document = {
        "state": str(run.state),
        "tasks": {task_id: str(instance.state) for task_id, instance in sorted(tasks.items())},
        "plan": returned["plan"],
        "transfer": returned["transfer"],
        "fleet_key": fleet["key"],
        "gateways": len(fleet["gateways"]),
    }
    outcome.write_text(json.dumps(document))


if __name__ == "__main__":
    os.chdir(_EXAMPLES.parent)
    _run(Path(sys.argv[1]))
