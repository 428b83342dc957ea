"""A check of a host that fails hides no other one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from skyplane_orchestration.provision.ssh import checks


def test_an_error_hides_nothing_that_was_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("the connection was lost")

    monkeypatch.setattr(checks, "_cannot_run_gateways", lambda *_, **__: "it lacks a package")
    host = SimpleNamespace(name="gw1", address="", data_address="")
    opened = SimpleNamespace(host=host, machine=None, root=SimpleNamespace(prepare=broken))
    login: Any = SimpleNamespace(host=host, opened=lambda: opened)
    runner: Any = None
    found = checks.findings([login], runner, needs_modules=True)
    assert [one.text for one in found] == ["it lacks a package", "the connection was lost"]
