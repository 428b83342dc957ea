"""Runs every example DAG once in one process and writes what came of it.

python example_runs.py RESULTS DAG_ID...        RESULTS is written: one JSON object, by DAG id
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.utils.db import initdb
from tests.e2e.airflow_scenarios import run

#: The run of a day is that of the day before, 2026-03-01, and that of an hour is 04:00.
AT = datetime(2026, 3, 2, 5, 30, tzinfo=UTC)


def main() -> None:
    initdb()
    folder = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    results: dict[str, Any] = {}
    for name in sys.argv[2:]:
        module = runpy.run_path(str(folder / f"{name}.py"))
        results[name] = run(module["dag"], at=AT)
    # Not to stdout: the processes that Airflow forks log there too.
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
