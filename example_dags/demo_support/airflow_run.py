"""Runs the example DAG and writes the return values of its tasks to a file.

    python -m example_dags.demo_support.airflow_run RUN.json

Airflow reads its settings from the environment when it is imported: `airflow_environment`. The
file is written after a failed run too; see `runner.DemoRun`.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any, Final

from example_dags.demo_support.follow import follow
from example_dags.demo_support.servers import DemoSite

GROUP: Final = "imagenet"

_EXAMPLES: Final = Path(__file__).resolve().parents[1]
#: Lines of the log that the demo shows: the start of a task, and lines of our operators.
_SHOWN: Final = re.compile(
    r"^\S+ \[(?:info|warning|error) *\] (?:"
    r"\[DAG TEST\] starting (?P<task>task_id=\S+)"
    r"|(?P<said>.*?) *\[airflow\.task\.operators\.skyplane_orchestration\.)"
)

_DAG_FILE: Final = _EXAMPLES / "sydney_to_paris.py"


def airflow_environment(site: DemoSite) -> dict[str, str]:
    """The site's environment, with an Airflow home in the site's directory."""
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
    """Run the DAG in another process; the fields of `DemoRun`.

    Raises RuntimeError if the process wrote no file.
    """
    environment = airflow_environment(site)
    file = site.directory / "run.json"
    command = [sys.executable, "-m", __name__, str(file)]
    follow(command, environment, _EXAMPLES.parent, site.log_path, _shown)
    if not file.exists():
        log = site.log_path.read_text(errors="replace")
        raise RuntimeError(f"the DAG's process wrote no file:\n{log[-4000:]}")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def _shown(line: str) -> str | None:
    found = _SHOWN.match(line)
    return (found["task"] or found["said"]).strip() if found else None


def _run(file: Path) -> None:
    from airflow.utils.db import initdb

    initdb()
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
    file.write_text(json.dumps(document))


if __name__ == "__main__":
    os.chdir(_EXAMPLES.parent)
    _run(Path(sys.argv[1]))
