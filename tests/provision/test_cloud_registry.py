"""The settings of the provisioner `cloud`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision import cloud_registry
from skyplane_orchestration.provision.cloud_registry import parse_clouds, read_clouds
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.machines import FleetTags
from skyplane_orchestration.provision.fleet.user_data import MOST_USER_DATA_BYTES
from skyplane_orchestration.security.authority import Authority, FleetSecret
from skyplane_orchestration.security.store_credentials import CredentialSources

IMAGE = f"registry.example/skyplane-gateway@sha256:{'0' * 64}"
ID = "01234567-89ab-cdef-0123-456789abcdef"
GOOD: dict[str, Any] = {"image": IMAGE, "control_cidrs": ["203.0.113.7/32"], "aws": None}


def test_a_file_with_an_empty_section_opens_its_cloud(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    file.write_text(f"image: {IMAGE}\ncontrol_cidrs: [203.0.113.7/32]\npoll_s: 5\naws:\n")
    settings = read_clouds(file)
    assert (settings.boot.image, settings.options.poll_s) == (IMAGE, 5.0)
    assert settings.options.control_cidrs == ("203.0.113.7/32",)
    assert settings.open(CredentialSources()).name == "cloud"


def test_one_section_counts_alone(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    file.write_text(f"image: {IMAGE}\ncontrol_cidrs: [203.0.113.7/32]\naws:\ngcp: {{a: 1}}\n")
    settings = read_clouds(file)
    assert list(settings.only("aws").clouds) == ["aws"]
    with pytest.raises(ConfigurationInvalid, match=r"clouds.yaml has no section azure; it has aws"):
        settings.only("azure")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": "skyplane-gateway:latest"}, "not pinned by a digest"),
        ({"control_cidrs": []}, "control_cidrs is empty: leave it out, or name the addresses"),
        (
            {"control_cidrs": "auto", "aws": {"public_address": False}},
            "aws has public_address: false, so control_cidrs must name the private ranges",
        ),
        ({"control_cidrs": ["here"]}, "control_cidrs: 'here' is no range of addresses; write"),
        (
            {"control_cidrs": ["10.0.0.1/8"]},
            "control_cidrs: '10.0.0.1/8' is no range of addresses; write 10.0.0.0/8, or"
            " 10.0.0.1/32 for this address alone",
        ),
        ({"control_cidrs": ["10.0.0.0/33"]}, "control_cidrs: '10.0.0.0/33' is no range"),
        ({"control_cidrs": ["::/0"]}, "control_cidrs has no range of IPv4"),
        (
            {"control_cidrs": "10.0.0.0/8"},
            r"control_cidrs must be auto, or a list of ranges such as .*, not '10.0.0.0/8'",
        ),
        ({"software": "wheel"}, "software must be one of push, bundle, image, not 'wheel'"),
        ({"bundle_sha256": "0"}, "its software: bundle_sha256"),
        ({"gateway_credentials": "whole"}, "gateway_credentials is no setting of clouds: .*comm"),
        ({"registry_identity": "a"}, "registry_identity is a setting of one cloud: .* such as aws"),
        ({"aws": {"control_port": 443}}, "control_port is a setting of all clouds: .* section aws"),
        ({"aws": {"image": IMAGE}}, "image is a setting of all clouds: .* section aws, not in it"),
        ({"provision_s": {"oracle": 9}}, "provision_s has 'oracle', which is no cloud"),
        ({"provision_s": {"aws": -1}}, "provision_s of aws must be a number from zero, not -1"),
        ({"poll_s": 0}, "poll_s must be at least 0.1 s, not 0"),
        ({"control_port": 8443}, "control_port must be 443, or 7600"),
        ({"colour": "red"}, "unknown fields: colour; known fields: answer_timeout_s, aws"),
        ({"control_cidr": []}, "unknown fields: control_cidr; did you mean control_cidrs?"),
        ({"pole_s": 1, "x": 1}, "unknown fields: pole_s, x; did you mean poll_s?"),
        ({"aws": ["us-east-1"]}, "aws must be an object with settings"),
        ({"aws": False}, "aws must be an object with settings, which may be empty, not a bool"),
        ({"provision_s": {"aws": 10**400}}, "provision_s.aws"),
        ({"gateway_settings": {1: 2}}, "gateway_settings"),
        ({"gateway_settings": {"node": "me"}}, "gateway_settings cannot hold node"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=words):
        parse_clouds(GOOD | changes)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["10.0.0.0/8", "10.0.0.0/16"], ["10.0.0.0/8"]),
        (["10.1.0.0/16", "10.0.0.0/8", "10.0.0.0/8"], ["10.0.0.0/8"]),
        (["203.0.113.6/32", "203.0.113.7"], ["203.0.113.6/31"]),
        (["0.0.0.0/1", "128.0.0.0/1"], ["0.0.0.0/0"]),
        (["203.0.113.7/32", "192.0.2.1/32"], ["192.0.2.1/32", "203.0.113.7/32"]),
        (
            ["2001:db8::/32", "2001:db8:1::/48", "203.0.113.7/32"],
            ["203.0.113.7/32", "2001:db8::/32"],
        ),
    ],
)
def test_control_cidrs_that_overlap_are_joined(given: list[str], expected: list[str]) -> None:
    options = parse_clouds(GOOD | {"control_cidrs": given}).options
    assert options.control_cidrs == tuple(expected)


@pytest.mark.parametrize("given", [{}, {"control_cidrs": "auto"}])
def test_workers_learn_their_addresses_by_default(given: dict[str, Any]) -> None:
    settings = parse_clouds({"image": IMAGE, "aws": None} | given)
    assert settings.options.control_cidrs is None


def test_a_number_as_a_field_of_a_section_is_named() -> None:
    with pytest.raises(ConfigurationInvalid, match=r"clouds\.aws must have texts as names, not 7"):
        parse_clouds(GOOD | {"aws": {7: "regions"}}).open(CredentialSources())


def test_a_file_without_a_cloud_is_refused() -> None:
    document = {name: value for name, value in GOOD.items() if name != "aws"}
    with pytest.raises(ConfigurationInvalid, match="it has no cloud"):
        parse_clouds(document)


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    with pytest.raises(ConfigurationInvalid, match=r"clouds.yaml cannot be read: .*No such file"):
        read_clouds(file)
    file.write_text("- a\n")
    with pytest.raises(
        ConfigurationInvalid, match=r"clouds.yaml cannot be used: it must be an object"
    ):
        read_clouds(file)


ECR = f"123456789012.dkr.ecr.eu-west-3.amazonaws.com/gateway@sha256:{'0' * 64}"


def test_instances_of_an_opened_cloud_log_in_before_they_pull(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contexts: list[FleetContext] = []
    monkeypatch.setattr(
        cloud_registry, "InstanceProvisioner", lambda context, _bundle: contexts.append(context)
    )
    tags = FleetTags("ab" * 16, "prod", 0, 1_700_000_000, int(time.time()) + 3600)
    authority = Authority(FleetSecret(b"the secret of all tests of this file"), tags.fleet_key)
    for image, section in ((ECR, {"registry_identity": "puller"}), (IMAGE, {})):
        parse_clouds({"image": image, "aws": section}).open(CredentialSources())
        script = contexts.pop().boot.user_data(
            authority, tags, instance="aws:eu-west-3/0", launch_id="0" * 32, start_within_s=900.0
        )
        assert ("\nretry log_in\n" in script) == (image == ECR)
        assert len(script.encode()) < MOST_USER_DATA_BYTES


def test_an_image_that_not_all_opened_clouds_can_pull_is_refused() -> None:
    settings = parse_clouds(
        {"image": ECR, "aws": {"registry_identity": "puller"}, "azure": {"subscription_id": ID}}
    )
    assert settings.only("aws").open(CredentialSources()).name == "cloud"
    with pytest.raises(ConfigurationInvalid, match="instances of azure cannot log in to 1234"):
        settings.open(CredentialSources())


def test_settings_of_a_cloud_are_checked_when_it_is_opened() -> None:
    settings = parse_clouds(GOOD | {"aws": {"regions": ["gcp:us-central1"]}})
    with pytest.raises(ConfigurationInvalid, match="regions of aws has 'gcp:us-central1'"):
        settings.open(CredentialSources())


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_an_unknown_setting_of_a_cloud_is_named_without_its_value(cloud: str) -> None:
    settings = parse_clouds({**GOOD, cloud: {"secret_access_key": "hush"}})
    with pytest.raises(ConfigurationInvalid, match="unknown fields: secret_access_key") as caught:
        settings.open(CredentialSources())
    assert "hush" not in str(caught.value)
    assert "credential_ref" in str(caught.value)


def test_keys_in_place_of_a_reference_are_not_repeated() -> None:
    keys = {"access_key_id": "AKIA", "secret_access_key": "very secret"}
    with pytest.raises(ConfigurationInvalid, match="credential_ref must be text") as caught:
        parse_clouds({**GOOD, "aws": {"credential_ref": keys}}).open(CredentialSources())
    assert "very secret" not in str(caught.value)
