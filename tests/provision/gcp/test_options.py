"""Settings of Google Cloud, and the errors that name a wrong one."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.options import options_from
from skyplane_orchestration.provision.gcp import GcpOptions
from skyplane_orchestration.provision.gcp.options import region_name, region_of_zone

PROJECT = "my-project-123"


def test_settings_come_from_json() -> None:
    options = options_from(
        GcpOptions,
        "gcp",
        {
            "project": PROJECT,
            "regions": ["gcp:us-central1"],
            "zones": {"gcp:us-central1": ["us-central1-b"]},
            "user_labels": {"team": "data"},
        },
    )
    assert options.regions == ("gcp:us-central1",)
    assert options.zones == {"gcp:us-central1": ("us-central1-b",)}
    assert options.project == PROJECT


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"project": "My Project"}, "project of gcp has 'My Project'"),
        ({"regions": []}, "regions of gcp is empty"),
        ({"regions": ["us-central1"]}, "written as gcp:europe-west1"),
        ({"zones": {"gcp:us-central1": []}}, "zones of gcp for gcp:us-central1 is empty"),
        ({"zones": {"gcp:us-central1": ["europe-west1-b"]}}, "europe-west1-b of another"),
        ({"zones": {"gcp:us-central1": ["b"]}}, "not like europe-west1-b"),
        ({"images": {"riscv": "debian"}}, "no use for riscv"),
        ({"images": {"arm64": "debian-13"}}, "images of gcp for arm64"),
        ({"network": "a network"}, "network of gcp"),
        ({"subnetworks": {"gcp:us-central1": "Sub"}}, "subnetworks of gcp"),
        ({"subnetworks": {"aws:us-east-1": "sub"}}, "written as gcp:europe-west1"),
        ({"network_tier": "premium"}, "network_tier"),
        ({"service_account": "gateways"}, "service_account of gcp"),
        ({"scopes": ["devstorage"]}, "scopes of gcp"),
        ({"user_labels": {"Team": "data"}}, "a letter first"),
        ({"kms_key": "my-key"}, "kms_key of gcp"),
        ({"disk_gib": 9}, "from 10 to 65536"),
        ({"zone": "b"}, "zone"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=said):
        options_from(GcpOptions, "gcp", {"project": PROJECT, **settings})


def test_the_project_is_required() -> None:
    with pytest.raises(ConfigurationInvalid, match="project"):
        options_from(GcpOptions, "gcp", {})


def test_networks_are_of_the_project_unless_they_say_so() -> None:
    region = "gcp:us-central1"
    own = GcpOptions(PROJECT, subnetworks={region: "sub"})
    assert own.network_path == f"projects/{PROJECT}/global/networks/default"
    assert own.subnetwork_path(region).startswith(f"projects/{PROJECT}/regions/us-central1/")
    assert own.subnetwork_path("gcp:europe-west1") == ""
    shared = GcpOptions(PROJECT, network="projects/host-project/global/networks/net")
    assert (shared.firewall_project, own.firewall_project) == ("host-project", PROJECT)


def test_regions_of_other_clouds_are_refused() -> None:
    assert region_name("gcp:us-central1") == "us-central1"
    assert region_of_zone("us-central1-f") == "gcp:us-central1"
    with pytest.raises(ConfigurationInvalid, match="not a region of Google Cloud"):
        region_name("aws:us-east-1")
