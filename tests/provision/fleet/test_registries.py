"""Which instances log in to which registries."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.registries import Registry, login_of

DIGEST = "@sha256:" + "ab" * 32
ECR = "123456789012.dkr.ecr.eu-west-3.amazonaws.com"
PULLER: dict[str, Any] = {"registry_identity": "puller"}


@pytest.mark.parametrize(
    ("cloud", "host", "user"),
    [
        ("aws", ECR, "AWS"),
        ("aws", "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "AWS"),
        ("gcp", "europe-west1-docker.pkg.dev", "oauth2accesstoken"),
        ("gcp", "eu.gcr.io", "oauth2accesstoken"),
        ("gcp", "gcr.io", "oauth2accesstoken"),
        ("azure", "myteam.azurecr.io", "00000000-0000-0000-0000-000000000000"),
        # With a label of its tenant.
        ("azure", "myteam-a1b2c3.azurecr.io", "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_instances_log_in_to_the_registries_of_their_own_cloud(
    cloud: str, host: str, user: str
) -> None:
    expected = Registry(cloud, host, user)
    assert login_of(f"{host}/a/gateway{DIGEST}", {cloud: PULLER, "kubernetes": {}}) == expected


@pytest.mark.parametrize(
    "image",
    [
        "registry.example/gateway",
        "gateway",
        # These may allow pulls without login, and so they did before.
        "europe-west1-docker.pkg.dev/p/r/gateway",
        "myteam.azurecr.io/gateway",
        "public.ecr.aws/team/gateway",
    ],
)
def test_other_images_are_pulled_without_login(image: str) -> None:
    assert login_of(image + DIGEST, {"aws": {}, "gcp": {}, "azure": {}}) is None


def test_software_that_is_no_image_needs_no_login() -> None:
    assert login_of("", {"aws": {}}) is None


def test_nodes_of_clusters_pull_by_what_they_have() -> None:
    assert login_of(f"{ECR}/gateway{DIGEST}", {"kubernetes": {}}) is None


def test_machine_images_may_have_a_helper_that_logs_in() -> None:
    clouds: dict[str, Any] = {"aws": {"images": {"aws:eu-west-3": "ami-0123456789abcdef0"}}}
    assert login_of(f"{ECR}/gateway{DIGEST}", clouds) is None
    parameters = {"image_parameters": {"arm64": "/team/machine"}}
    clouds = {"aws": parameters, "gcp": {"images": {"arm64": "projects/p/global/images/i"}}}
    assert login_of(f"{ECR}/gateway{DIGEST}", clouds) is None


@pytest.mark.parametrize(
    ("image", "clouds", "says"),
    [
        (ECR, {"aws": PULLER, "gcp": {}}, "instances of gcp cannot log in to 123456789012.dkr"),
        # The boot script of each instance would log in.
        (ECR, {"aws": PULLER, "gcp": {"images": {"arm64": "i"}}}, "instances of gcp cannot"),
        (ECR, {"azure": {}}, "instances of azure cannot log in"),
        (ECR, {"aws": {}}, "name a registry_identity of aws"),
        ("eu.gcr.io", {"gcp": PULLER, "azure": {}}, "takes identities of gcp only; let them get"),
        (
            "registry.example",
            {"aws": PULLER},
            "registry_identity of aws is for an image in a private",
        ),
        (
            "myteam.azurecr.io",
            {"gcp": PULLER},
            "registry_identity of gcp is for an image",
        ),
        ("evil.example.azurecr.io", {"azure": PULLER}, "a private registry of azure, and"),
        ("", {"azure": PULLER}, "leave it out"),
    ],
)
def test_what_cannot_log_in_is_refused_before_a_launch(
    image: str, clouds: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        login_of(image and f"{image}/gateway{DIGEST}", clouds)
