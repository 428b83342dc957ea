"""Azure without its SDK."""

from __future__ import annotations

import sys

import pytest
from tests.test_imports import loaded_by

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from strict_clouds.arm import SUBSCRIPTION

MODULE = "skyplane_orchestration.provision.azure.client"


def test_importing_it_loads_no_sdk() -> None:
    loaded = loaded_by(
        "from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions;"
        f" AzureOptions('{SUBSCRIPTION}')"
    )
    assert loaded.isdisjoint(("azure", "msal"))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "azure.mgmt.compute", None)
    with pytest.raises(MissingExtra, match=r"the provisioner 'azure' needs the extra 'azure'"):
        AzureCloud(AzureOptions(SUBSCRIPTION))
