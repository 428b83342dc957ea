"""`doctor`: the checks of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.cli.main import main

if TYPE_CHECKING:
    from tests.cli.conftest import RunJson


def test_all_checks_pass_on_this_machine(
    run_json: RunJson, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not to be shown")
    checks = {check["name"]: check for check in run_json("doctor")["checks"]}
    for name in ("python", "gateway", "fleet secret", "run root", "grid", "solver", "loopback"):
        assert checks[name]["state"] == "ok", checks[name]
    assert checks["S3 credentials"]["detail"] == "found long-lived credentials"
    assert "AKID" not in str(checks)
    assert not list((private_home / "run").iterdir())
    assert not list((private_home / "config").iterdir())


def test_a_secret_that_others_can_read_fails(
    run_json: RunJson, private_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = private_home / "config" / "skyplane-orch" / "secret"
    secret.parent.mkdir()
    secret.write_text("0" * 64)
    secret.chmod(0o644)
    checks = {check["name"]: check for check in run_json("doctor", code=1)["checks"]}
    assert checks["fleet secret"]["state"] == "fail"
    assert "chmod 600" in checks["fleet secret"]["detail"]
    assert main(["doctor", "--grid", "/nowhere"]) == 1
    assert "0000" not in capsys.readouterr().out
