"""The demo: `python example_dags/run_demo.py airflow|dagster [--corrupt]`.

It starts two S3 servers that stand for Sydney and Paris, and runs the example DAG or asset with
gateways on this machine. Then it reads all objects back and compares them. The exit code is 0
only without a problem. See demo_support/runner.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from example_dags.demo_support.runner import main

if __name__ == "__main__":
    sys.exit(main())
