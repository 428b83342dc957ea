"""Materializes the example asset and writes the outputs of its ops to a file.

    python -m example_dags.demo_support.dagster_run RUN.json

See `runner.DemoRun` for the fields.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from example_dags.demo_support.follow import follow
from example_dags.demo_support.servers import DemoSite

ASSET: Final = "imagenet_paris"

_ROOT: Final = Path(__file__).resolve().parents[2]
_STEPS: Final = ("plan", "provision", "transfer", "teardown", "finish")

#: Lines of Dagster's log that the demo shows: the start of a step, and lines of our ops.
_SHOWN: Final = re.compile(
    rf" - dagster - (?:DEBUG - .* - {ASSET}\.(?P<step>\w+) - STEP_START\b"
    rf"|(?:INFO|WARNING|ERROR) - .* - {ASSET}\.(?P<of>\w+) - (?P<said>.*))"
)


def run_example(site: DemoSite) -> dict[str, Any]:
    """Materialize the asset in another process; the fields of `DemoRun`.

    Raises RuntimeError if the process wrote no file.
    """
    home = site.directory / "dagster"
    home.mkdir(exist_ok=True)
    file = site.directory / "run.json"
    environment = {
        **site.environment(),
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", __name__, str(file)]
    follow(command, environment, _ROOT, site.log_path, _shown)
    if not file.exists():
        text = site.log_path.read_text(errors="replace")
        raise RuntimeError(f"the asset's process wrote no file:\n{text[-4000:]}")
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def _shown(line: str) -> str | None:
    found = _SHOWN.search(line)
    return (found["step"] or f"{found['of']}: {found['said']}") if found else None


def _run(file: Path) -> None:
    import dagster as dg
    from example_dags.dagster.sydney_to_paris import defs

    job = defs.get_implicit_global_asset_job_def()
    with dg.DagsterInstance.get() as instance:
        result = job.execute_in_process(instance=instance, raise_on_error=False)
    outputs = {
        event.step_key.rpartition(".")[2]: result.output_for_node(event.step_key)
        for event in result.all_events
        if event.event_type_value == "STEP_SUCCESS" and event.step_key
        if not event.step_key.endswith(".finish")
    }
    states = {
        event.step_key.rpartition(".")[2]: event.event_type_value.removeprefix("STEP_").lower()
        for event in result.all_events
        if event.step_key and event.event_type_value in ("STEP_SUCCESS", "STEP_FAILURE")
    }
    fleet = outputs.get("provision") or {"key": "", "gateways": []}
    document = {
        "state": "success" if result.success else "failure",
        "tasks": {step: states.get(step, "not run") for step in _STEPS},
        "plan": outputs.get("plan"),
        "transfer": outputs["transfer"]["results"][""] if "transfer" in outputs else None,
        "fleet_key": fleet["key"],
        "gateways": len(fleet["gateways"]),
    }
    file.write_text(json.dumps(document))


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
