"""The whole demo: `python example_dags/run_demo.py airflow|dagster [--corrupt]`.

Starts two S3 servers that stand for Sydney and Paris, runs the example DAG (or asset) on
them with gateways as processes of this machine, reads every byte back and compares. Ends
with 0 only when all is as it should be. See demo_support/runner.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from example_dags.demo_support.runner import main

if __name__ == "__main__":
    sys.exit(main())
