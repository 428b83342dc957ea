"""The fakes of Google Cloud and Azure refuse what the caller's role does not allow."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from strict_clouds.arm import SUBSCRIPTION, strict_arm
from strict_clouds.gce import PROJECT, strict_gce

GCP_ROLE: dict[str, Any] = {"title": "t", "includedPermissions": ["compute.projects.get"]}
AZURE_ROLE: dict[str, Any] = {
    "Name": "n",
    "IsCustom": True,
    "Description": "d",
    "Actions": ["Microsoft.Compute/*"],
    "NotActions": ["Microsoft.Compute/disks/read"],
    "DataActions": [],
    "NotDataActions": [],
    "AssignableScopes": [f"/subscriptions/{SUBSCRIPTION}"],
}


def refusal(url: str, status: int = 403) -> Any:
    """The error of a refused request."""
    with pytest.raises(HTTPError) as caught:
        urlopen(url)
    assert caught.value.code == status
    return json.loads(caught.value.read())["error"]


def test_google_names_the_permission_that_the_role_lacks() -> None:
    with strict_gce(policy=GCP_ROLE) as gce:
        project = f"{gce.url}/compute/v1/projects/{PROJECT}"
        urlopen(project)
        error = refusal(f"{project}/regions")
    assert error["errors"][0]["reason"] == "forbidden"
    assert "Required 'compute.regions.list' permission" in error["message"]


def test_azure_names_the_action_that_the_role_lacks() -> None:
    with strict_arm(policy=AZURE_ROLE) as arm:
        root = f"{arm.url}/subscriptions/{SUBSCRIPTION}"
        listed = f"{root}/providers/Microsoft.Compute/virtualMachines?statusOnly=true&api-version="
        urlopen(f"{listed}2026-04-01")
        # Azure knows an action only for a version that the provider has.
        assert refusal(f"{listed}2019-01-01", 400)["code"] == "NoRegisteredProviderFound"
        for path, action in (
            ("providers/Microsoft.Compute/disks?api-version=2026-03-02", "Microsoft.Compute/disks"),
            ("resourceGroups?api-version=2025-04-01", "Microsoft.Resources/subscriptions"),
        ):
            error = refusal(f"{root}/{path}")
            assert error["code"] == "AuthorizationFailed"
            assert f"'{action}" in error["message"]


def test_other_definitions_are_errors() -> None:
    with pytest.raises(ValueError, match="etag"), strict_gce(policy={**GCP_ROLE, "etag": "x"}):
        pass
    for changes in (
        {"DataActions": ["Microsoft.Storage/*"]},
        {"AssignableScopes": ["/subscriptions/other"]},
        {"condition": "@Resource"},
    ):
        with pytest.raises(ValueError), strict_arm(policy={**AZURE_ROLE, **changes}):
            pass
