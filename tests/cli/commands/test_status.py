"""What `status` tells of gateways, and the cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.transfer.samples import KEY, PLAN, A, fleet_of

from skyplane_orchestration.cli.commands.status import _cost, _print
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.model.fleet import FleetInstance
from skyplane_orchestration.model.plan import InstanceGroup


def test_the_cost_grows_only_while_a_gateway_answers() -> None:
    """The document of a fleet that ended last week cost more each hour."""
    plan = replace(PLAN, instances={A: InstanceGroup("x", 1, 0.36)})
    one = FleetInstance(f"{A}/0", A, "i-1", 1000.0)
    fleet = replace(fleet_of("ab", plan=plan), instances=(one,))
    cost = _cost(fleet, {"a": {"leading": {}}})
    assert cost is not None
    assert cost.instance_usd > 0
    assert _cost(fleet, {}) is None


def test_a_long_error_of_a_gateway_leaves_the_others_readable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    message = "does not answer: " + "x" * 200
    well = {"state": "ready", "connected": True, "lease_remaining_s": 100.0, "leading": {}}
    gateways = {"aws:us-east-1/0": well, "aws:us-east-1/1": {"error": {"message": message}}}
    _print(gateways, Console(is_json=False, is_quiet=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["aws:us-east-1/0", "ready", "connected"]
    assert lines[2].split() == ["aws:us-east-1/1", "no", "response"]
    assert "".join(lines[3:]) == f"aws:us-east-1/1: {message}"


def test_a_transfer_shows_what_has_arrived_of_unfinished_objects(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    status = {
        "transfer_key": KEY, "epoch": 1, "state": "running", "listed": True, "objects": 1,
        "bytes": 400 << 20, "copied": 0, "copied_bytes": 0, "skipped": 0, "failed": 0,
        "seconds": 4.0, "delivered_bytes": {"0": 16 << 20}, "moving_bytes": 8 << 20,
        "unfinished": 1, "error": None, "failures": [], "open_uploads": [],
    }  # fmt: skip
    lead = {
        "state": "ready", "connected": True, "lease_remaining_s": 100.0, "leading": {KEY: status},
    }  # fmt: skip
    _print({"aws:us-east-1/0": lead}, Console(is_json=False, is_quiet=False))
    assert "24.0 MiB of 400.0 MiB, 6.0 MiB/s" in capsys.readouterr().out
