"""The bench of fleets runs to its end and has the stated cases."""

from __future__ import annotations

import json

import pytest
from bench import provision
from bench.instances import LOOKS


@pytest.mark.long
def test_a_smoke_run_has_all_cases(capsys: pytest.CaptureFixture[str]) -> None:
    assert provision.main(["--smoke", "--json"]) == 0
    cases = {row["case"]: row["value"] for row in json.loads(capsys.readouterr().out)["results"]}
    assert {"local-ready", "fleet-ready", "teardown"} <= set(cases)
    by_action = {name: value for name, value in cases.items() if name.startswith("calls ")}
    assert cases["calls"] == sum(by_action.values())
    assert cases["calls aws RunInstances"] == 4
    # A wrong name would count no look, and keep every floor.
    assert all(f"calls {name}" in by_action for name in LOOKS)
