"""The bench of links runs to its end and has the stated rows."""

from __future__ import annotations

import json
import shutil

import pytest
from bench import link


@pytest.mark.long
def test_a_smoke_run_has_all_rows_whose_peers_are_here(capsys: pytest.CaptureFixture[str]) -> None:
    only = {"sealed", "relay", "small"} if shutil.which("iperf3") is None else link.ROWS
    # The prototype is no part of this project, and not every machine has root and TUN.
    missing = {"direct", "relay-rate"}
    found = set()
    for name in sorted(only):
        assert link.main(["--smoke", "--json", "--only", name, "--bound", "/nowhere"]) == 0
        found |= {row["case"] for row in json.loads(capsys.readouterr().out)["results"]}
    assert only - missing <= found <= only - {"direct"}
