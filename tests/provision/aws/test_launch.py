"""What RunInstances is asked for, and what is made of its refusals."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.provision.aws.harness import REGISTRY_ROLE, AwsHarness, aws_harness
from tests.provision.aws.samples import (
    ARM_TYPE,
    FLEET,
    REGION,
    REQUEST,
    X86_TYPE,
    a_request,
    prepared,
)
from tests.provision.fleet.launches import USES_IDENTITY

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudUnavailable,
    ConfigurationInvalid,
    QuotaExceeded,
)
from skyplane_orchestration.provision.aws.options import DEBIAN
from skyplane_orchestration.provision.parallel import in_parallel
from strict_clouds.aws_wire import Request

OUR_TAGS = {
    "skyplane:fleet": FLEET.fleet_key,
    "skyplane:deployment": "prod",
    "skyplane:generation": "0",
    "skyplane:created": "1700000000",
    "skyplane:hard-end": "1700086400",
    "skyplane:processes": "1",
    "skyplane:instance": "eu-west-3/0",
    "skyplane:launch": "0" * 32,
}


def tags_by_kind(request: Request) -> dict[str, dict[str, str]]:
    """Kind of resource -> its tags in a request."""
    found = {}
    for number in range(1, 6):
        prefix = f"TagSpecification.{number}."
        kind = request.parameters.get(f"{prefix}ResourceType")
        if kind is not None:
            keys = [name for name in request.starting(prefix) if name.endswith(".Key")]
            found[kind] = {
                request.parameters[name]: request.parameters[name.removesuffix("Key") + "Value"]
                for name in keys
            }
    return found


def launched(harness: AwsHarness, is_end: bool = False, **options: Any) -> Request:
    """The request of one launch."""
    prepared(harness.aws(**options)).launch(a_request(is_end=is_end))
    (request,) = harness.ec2.requests("RunInstances")
    return request


def zone_of(harness: AwsHarness) -> str:
    (instance,) = harness.ec2.instances("eu-west-3")
    return str(instance.placement.zone)


def test_instance_disk_and_interface_get_their_tags_in_the_same_call(harness: AwsHarness) -> None:
    named = tags_by_kind(launched(harness, user_tags={"team": "data", "Name": "mine"}))
    assert set(named) == {"instance", "volume", "network-interface"}
    for tags in named.values():
        assert tags == {**OUR_TAGS, "team": "data", "Name": "mine"}
    assert harness.ec2.actions("CreateTags") == []


def test_metadata_needs_a_token_and_is_one_hop_away(harness: AwsHarness) -> None:
    asked = launched(harness).parameters
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["MetadataOptions.HttpPutResponseHopLimit"] == "1"


def test_power_off_ends_the_instance_its_disk_and_its_interface(harness: AwsHarness) -> None:
    asked = launched(harness).parameters
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert asked["NetworkInterface.1.DeleteOnTermination"] == "true"
    assert "KeyName" not in asked


@pytest.mark.parametrize(("options", "key"), [({}, None), ({"kms_key_id": "alias/x"}, "alias/x")])
def test_the_disk_is_small_and_encrypted(
    harness: AwsHarness, options: dict[str, Any], key: str | None
) -> None:
    asked = launched(harness, **options).parameters
    assert asked["BlockDeviceMapping.1.Ebs.Encrypted"] == "true"
    assert asked["BlockDeviceMapping.1.Ebs.VolumeType"] == "gp3"
    assert asked["BlockDeviceMapping.1.Ebs.VolumeSize"] == "8"
    assert asked.get("BlockDeviceMapping.1.Ebs.KmsKeyId") == key


@pytest.mark.parametrize("is_public", [True, False])
def test_an_instance_has_a_public_address_or_none_at_all(
    harness: AwsHarness, is_public: bool
) -> None:
    request = launched(harness, public_address=is_public)
    assert (
        request.parameters["NetworkInterface.1.AssociatePublicIpAddress"] == str(is_public).lower()
    )
    (instance,) = harness.ec2.instances()
    cloud = harness.aws(public_address=is_public)
    cloud.describe(FLEET.fleet_key, [REGION])
    (found,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert (instance.public_ip is not None) == is_public
    assert found.address == (instance.public_ip if is_public else instance.private_ip)


def test_a_public_address_comes_with_the_first_description(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    assert cloud.launch(REQUEST).address == ""
    cloud.describe(FLEET.fleet_key, [REGION])
    assert cloud.describe(FLEET.fleet_key, [REGION])[0].address != ""


@pytest.mark.parametrize(
    "profile", ["gateways", "arn:aws:iam::123456789012:instance-profile/gateways"]
)
def test_only_ends_get_the_instance_profile(harness: AwsHarness, profile: str) -> None:
    cloud = prepared(harness.aws(instance_profile=profile))
    with harness.instance_profile("gateways"):
        for index, is_end in enumerate((True, False)):
            cloud.launch(a_request(instance=f"{REGION}/{index}", is_end=is_end))
    end, relay = harness.ec2.requests("RunInstances")
    assert list(end.starting("IamInstanceProfile.").values()) == [profile]
    assert relay.starting("IamInstanceProfile.") == {}


def test_instances_without_an_own_profile_get_the_one_of_the_registry_which_gateways_cannot_use(
    harness: AwsHarness,
) -> None:
    cloud = prepared(harness.aws(instance_profile="gateways", registry_identity="puller"))
    with harness.instance_profile("gateways"), harness.instance_profile("puller", REGISTRY_ROLE):
        for index, is_end in enumerate((True, False)):
            name = f"{REGION}/{index}"
            cloud.launch(a_request(instance=name, is_end=is_end, user_data=USES_IDENTITY))
    end, relay = harness.ec2.requests("RunInstances")
    assert end.starting("IamInstanceProfile.") == {"IamInstanceProfile.Name": "gateways"}
    assert relay.starting("IamInstanceProfile.") == {"IamInstanceProfile.Name": "puller"}
    hidden = ["prohibit" in decoded(one.starting("UserData")["UserData"]) for one in (end, relay)]
    assert hidden == [False, True]


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def test_relays_are_spot_instances_by_option(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws(spot_relays=True))
    for index, is_end in enumerate((True, False)):
        cloud.launch(a_request(instance=f"{REGION}/{index}", is_end=is_end))
    end, relay = harness.ec2.requests("RunInstances")
    assert end.starting("InstanceMarketOptions.") == {}
    assert relay.starting("InstanceMarketOptions.") == {
        "InstanceMarketOptions.MarketType": "spot",
        "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
        "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
    }
    assert (
        tags_by_kind(relay)["spot-instances-request"].items()
        >= {"skyplane:fleet": FLEET.fleet_key}.items()
    )


def test_the_quota_of_spot_instances_is_another_one(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws(spot_relays=True))
    harness.set_spot_quota(0)
    with pytest.raises(QuotaExceeded, match="L-34B43A08"):
        cloud.launch(REQUEST)
    assert cloud.launch(a_request(is_end=True)).is_alive


def test_user_data_is_encoded_once(harness: AwsHarness) -> None:
    sent = launched(harness).parameters["UserData"]
    assert base64.b64decode(sent).decode() == REQUEST.user_data


def test_user_data_of_aws_limit_is_accepted(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    assert cloud.launch(a_request(user_data="#" * 16384)).is_alive


@pytest.mark.parametrize(("kind", "architecture"), [(ARM_TYPE, "arm64"), (X86_TYPE, "x86_64")])
def test_the_image_is_that_of_the_type(harness: AwsHarness, kind: str, architecture: str) -> None:
    cloud = prepared(harness.aws())
    cloud.launch(a_request(instance_type=kind))
    (asked,) = harness.ec2.requests("GetParameter")
    assert asked.parameters["Name"] == DEBIAN[architecture]
    (launch,) = harness.ec2.requests("RunInstances")
    assert launch.parameters["ImageId"].startswith("ami-")


def test_an_image_of_ones_own_has_its_own_root_device(harness: AwsHarness) -> None:
    image = harness.make_image("x86_64")
    cloud = prepared(harness.aws(images={REGION: image}))
    cloud.launch(a_request(instance_type=X86_TYPE))
    (launch,) = harness.ec2.requests("RunInstances")
    assert launch.parameters["ImageId"] == image
    assert launch.parameters["BlockDeviceMapping.1.DeviceName"] == "/dev/sda1"
    assert harness.ec2.actions("GetParameter") == []
    with pytest.raises(ConfigurationInvalid, match=r"for x86_64.*for arm64"):
        cloud.launch(a_request(instance_type=ARM_TYPE))


def test_an_own_image_of_a_parameter_has_its_own_root_device() -> None:
    """Else the root disk keeps the size of the image and is not encrypted."""
    with aws_harness(also=["ssm:GetParameter"]) as harness:
        image = harness.make_image("x86_64")
        harness.make_parameter("/own/image", image)
        cloud = prepared(harness.aws(image_parameters={"x86_64": "/own/image"}))
        cloud.launch(a_request(instance_type=X86_TYPE))
        (launch,) = harness.ec2.requests("RunInstances")
    assert launch.parameters["ImageId"] == image
    assert launch.parameters["BlockDeviceMapping.1.DeviceName"] == "/dev/sda1"


def test_the_key_of_an_instance_that_aws_does_not_know_is_an_error_of_the_cloud(
    harness: AwsHarness,
) -> None:
    cloud = prepared(harness.aws())
    instance = cloud.launch(REQUEST)
    harness.ec2.fail("CreateTags", "InvalidInstanceID.NotFound", times=7)
    with pytest.raises(CloudUnavailable, match="try again"):
        cloud.pin_key(instance, "ab" * 20)


def test_an_image_that_does_not_exist_is_named(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws(images={REGION: "ami-00000000"}))
    with pytest.raises(ConfigurationInvalid, match="ami-00000000"):
        cloud.launch(REQUEST)
    parameter = "/aws/service/debian/release/13/latest/none"
    cloud = prepared(harness.aws(image_parameters={"arm64": parameter}))
    with pytest.raises(ConfigurationInvalid, match=parameter):
        cloud.launch(REQUEST)
    with pytest.raises(ConfigurationInvalid, match="x86_64"):
        cloud.launch(a_request(instance_type=X86_TYPE))


def test_subnets_are_tried_in_their_order(harness: AwsHarness) -> None:
    first, second = harness.subnets()[1:3]
    cloud = prepared(harness.aws(subnets={REGION: (second[0], first[0])}))
    cloud.launch(REQUEST)
    assert zone_of(harness) == second[1]
    harness.ec2.conditions.full.add(second[1])
    cloud.launch(a_request(instance=f"{REGION}/1"))
    zones = {one.placement.zone for one in harness.ec2.instances()}
    assert zones == {first[1], second[1]}


def test_an_unsupported_zone_is_passed_over(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    harness.ec2.fail("RunInstances", "Unsupported")
    cloud.launch(REQUEST)
    assert zone_of(harness) == "eu-west-3b"


def test_no_capacity_says_what_to_do(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    harness.fill(REGION, all_zones=True)
    with pytest.raises(CapacityUnavailable, match="another instance type or region"):
        cloud.launch(REQUEST)
    assert harness.ec2.actions("RunInstances") == ["RunInstances"] * 3


def test_refused_launches_make_no_later_one_slow(harness: AwsHarness) -> None:
    """Each retry undoes its fleet, firewall included, and makes it again."""
    harness.set_quota(0)
    for number in range(2):
        cloud = prepared(harness.aws())
        with pytest.raises(QuotaExceeded):
            cloud.launch(a_request(launch_id=f"{number:032x}"))
        assert cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, [REGION])) == ()
    harness.set_quota(8)
    began_s = harness.clock.now_s
    prepared(harness.aws()).launch(REQUEST)
    assert harness.clock.now_s - began_s < 5
    assert harness.launches() == 1


def test_refused_repairs_cost_a_later_one_a_single_wait(harness: AwsHarness) -> None:
    """A fleet that lives keeps its firewall, so its tokens stay used up."""
    cloud = prepared(harness.aws())
    harness.set_quota(0)
    for number in range(2):
        with pytest.raises(QuotaExceeded):
            cloud.launch(a_request(launch_id=f"{number:032x}"))
    harness.set_quota(8)
    began_s = harness.clock.now_s
    assert cloud.launch(a_request(launch_id="f" * 32)).launch_id == "f" * 32
    assert 20 < harness.clock.now_s - began_s < 40
    assert harness.launches() == 1


def test_a_name_that_has_ended_many_times_is_launched_again(harness: AwsHarness) -> None:
    """AWS keeps tokens of ended instances for a day, and shows those for an hour."""
    cloud = prepared(harness.aws())
    for number in range(17):
        again = a_request(launch_id=f"{number:032x}", launch_number=number)
        harness.ec2.end_by_hand(cloud.launch(again).cloud_id)
    assert cloud.launch(a_request(launch_id="f" * 32)).launch_id == "f" * 32


def test_tokens_fit_and_differ(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    for name in ("0", "1"):
        cloud.launch(a_request(instance=f"{REGION}/{name}"))
    tokens = [one.parameters["ClientToken"] for one in harness.ec2.requests("RunInstances")]
    assert len(set(tokens)) == 2
    assert all(len(token) <= 64 and token.isascii() for token in tokens)


def test_a_fleet_without_its_firewall_is_not_launched(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    other = harness.aws()
    other.delete_leftovers(other.leftovers(FLEET.fleet_key, [REGION]))
    for worker in (cloud, harness.aws()):
        with pytest.raises(CloudUnavailable, match="tearing the fleet down") as caught:
            worker.launch(REQUEST)
        assert not caught.value.is_permanent
    assert harness.launches() == 0


def test_a_group_that_launches_do_not_know_yet_is_waited_for(harness: AwsHarness) -> None:
    harness.hide_new(4)
    cloud = prepared(harness.aws())
    assert cloud.launch(REQUEST).is_alive
    assert harness.launches() == 1


def test_launches_at_the_same_time_ask_for_the_same_things_once(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    before = len(harness.ec2.calls)
    in_parallel([a_request(instance=f"{REGION}/{index}") for index in range(4)], cloud.launch)
    assert sorted(harness.ec2.actions()[before:]) == [
        "DescribeImages",
        "DescribeInstanceTypes",
        "GetParameter",
        *["RunInstances"] * 4,
    ]


def test_an_instance_that_aws_has_stopped_can_be_ended(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    launched = cloud.launch(REQUEST)
    harness.ec2.instances()[0].stop()
    (stopped,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert stopped.is_alive
    cloud.terminate([stopped])
    cloud.describe(FLEET.fleet_key, [REGION])
    (ended,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert (ended.cloud_id, ended.state) == (launched.cloud_id, "ended")
