"""A private home for every test of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clouds.accounts import account, aws_keys  # noqa: F401

from skyplane_orchestration.cli.main import main

RunJson = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name in ("config", "run"):
        (home / name).mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("SKYPLANE_DEPLOYMENT", raising=False)
    return home


@pytest.fixture
def run_json(capsys: pytest.CaptureFixture[str]) -> RunJson:
    """Run the command with --json; its one object."""

    def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        assert main([*arguments, "--json"]) == code
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return run
