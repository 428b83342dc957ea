"""Options of AWS are checked before any call."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.aws import AwsOptions
from skyplane_orchestration.provision.aws.options import region_name
from skyplane_orchestration.provision.fleet.options import options_from

REGION = "aws:eu-west-3"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"regions": ["eu-west-3"]}, "regions of aws has 'eu-west-3'; regions are written as"),
        ({"regions": ["gcp:us-central1"]}, "regions of aws has 'gcp:us-central1'"),
        ({"regions": []}, "regions of aws is empty"),
        ({"images": {"eu-west-3": "ami-01234567"}}, "images of aws has 'eu-west-3'"),
        ({"images": {REGION: "my image"}}, "images of aws for aws:eu-west-3 has 'my image'"),
        ({"subnets": {REGION: []}}, "subnets of aws for aws:eu-west-3 is empty"),
        ({"subnets": {REGION: ["vpc-1"]}}, "has 'vpc-1', which is not like subnet-"),
        ({"image_parameters": {"sparc": "/x"}}, "no use for sparc; it can have arm64 and x86_64"),
        ({"disk_gib": 4}, "disk_gib of aws must be from 8 to 16384, not 4"),
        ({"user_tags": {"aws:x": "y"}}, "user_tags of aws cannot have 'aws:x'"),
        ({"public": True}, "public"),
        ({"spot_relays": "yes"}, "spot_relays"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        options_from(AwsOptions, "aws", settings)
    assert words in str(caught.value)


def test_settings_are_plain_json() -> None:
    options = options_from(
        AwsOptions,
        "aws",
        {
            "credential_ref": "profile:gateways",
            "regions": [REGION],
            "subnets": {REGION: ["subnet-0123456789abcdef0"]},
            "public_address": False,
        },
    )
    assert options.regions == (REGION,)
    assert options.subnets == {REGION: ("subnet-0123456789abcdef0",)}
    assert not options.public_address


def test_regions_of_other_clouds_are_refused() -> None:
    assert region_name(REGION) == "eu-west-3"
    with pytest.raises(ConfigurationInvalid, match="not a region of AWS"):
        region_name("gcp:us-central1")
