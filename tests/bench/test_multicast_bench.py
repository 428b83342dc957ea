"""The bench of several destinations runs; what it measures is no business of a test."""

from __future__ import annotations

import json

import pytest
from bench import multicast


def test_the_smoke_mode_prints_the_promised_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multicast, "FLOOR_S", 1e6)
    assert multicast.main(["--smoke", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bench"] == "multicast"
    ratio = document["results"][0]["ratio"]
    assert 0 < ratio < 1
