"""AWS without its SDK."""

from __future__ import annotations

import sys

import pytest
from tests.test_imports import loaded_by

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.provision.aws import AwsCloud

MODULE = "skyplane_orchestration.provision.aws.client"


def test_importing_it_loads_no_sdk() -> None:
    loaded = loaded_by(
        "from skyplane_orchestration.provision.aws import AwsCloud, AwsOptions; AwsOptions()"
    )
    assert loaded.isdisjoint(("boto3", "botocore"))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(MissingExtra, match=r"the provisioner 'aws' needs the extra 'aws'"):
        AwsCloud()
