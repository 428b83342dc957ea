"""Google Cloud without its SDK."""

from __future__ import annotations

import sys

import pytest
from tests.test_imports import loaded_by

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions

MODULE = "skyplane_orchestration.provision.gcp.client"


def test_importing_it_loads_no_sdk() -> None:
    loaded = loaded_by(
        "from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions;"
        " GcpOptions('my-project-123')"
    )
    assert loaded.isdisjoint(("google.auth", "google.cloud"))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "google.api_core.exceptions", None)
    with pytest.raises(MissingExtra, match=r"the provisioner 'gcp' needs the extra 'gcp'"):
        GcpCloud(GcpOptions("my-project-123"))
