"""The bench of several destinations runs; what it measures is no business of a test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import multicast

from skyplane_orchestration.grids import load_grid


def test_the_smoke_mode_prints_the_promised_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a few regions: the shipped grid takes ten times as long."""
    src, destinations, _ = multicast.FAN_OUT
    tags = dict.fromkeys(["region", src, *destinations, *load_grid().tags[::20]])
    (tmp_path / "regions.csv").write_text("\n".join(tags))
    few = load_grid(tmp_path)
    monkeypatch.setattr(multicast, "load_grid", lambda: few)
    monkeypatch.setattr(multicast, "FLOOR_S", 1e6)
    monkeypatch.setattr(multicast, "copies_cases", lambda *_: [])
    assert multicast.main(["--smoke", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bench"] == "multicast"
    ratio = document["results"][0]["ratio"]
    assert 0 < ratio < 1


@pytest.mark.e2e
def test_copies_to_three_destinations_send_every_byte_once_out_of_the_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gateways as processes, and proxies that count; alone, they send it three times."""
    monkeypatch.setattr(multicast, "TIME_FLOOR", 1e6)
    assert multicast.main(["--smoke", "--copies", "--json"]) == 0
    (shared, _) = json.loads(capsys.readouterr().out)["results"]
    assert 1.0 <= shared["value"] <= 1.02
    assert shared["ratio"] >= 3.0
