"""AWS for the conformance suite of clouds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ssm.models import ssm_backends
from tests.clouds.fakes import open_ec2
from tests.manual_clock import ManualClock
from tests.provision.fleet.cloud_harness import DELETE, DESCRIBE, LAUNCH, OPEN, TERMINATE

from skyplane_orchestration.provision.aws import AwsCloud, AwsOptions
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    Ingress,
    Instance,
    Machines,
)
from strict_clouds.ec2 import StrictEc2
from strict_clouds.ec2_moto import ON_DEMAND_QUOTA, backend_of
from strict_clouds.machines import MachineBooter

_ACTIONS: Final = {
    LAUNCH: "RunInstances",
    DESCRIBE: "DescribeInstances",
    TERMINATE: "TerminateInstances",
    OPEN: "AuthorizeSecurityGroupIngress",
    DELETE: "DeleteSecurityGroup",
}
#: Of instances that pull the image only, in the documented policy.
REGISTRY_ROLE: Final = "skyplane-registry"
#: Of all tests that have a harness.
_DEPLOYMENTS: Final = ("local", "prod", "prod eu=*", "prod eu=", "production", "staging", "test")
_KINDS: Final = {"security-group": "firewall", "volume": "disk", "network-interface": "interface"}


class AwsHarness:
    """See `CloudHarness`; `options` change those of workers made later."""

    region = "aws:eu-west-3"
    other_region = "aws:us-east-1"
    third_region = "aws:eu-south-2"
    closed_region = "aws:af-south-1"
    instance_type = "c7gn.large"
    vcpus = 2
    quota_name = ON_DEMAND_QUOTA

    def __init__(self, ec2: StrictEc2) -> None:
        self.ec2 = ec2
        self.clock = ManualClock(time.time())
        self._foreign: tuple[Any, Any] | None = None

    def aws(self, **options: Any) -> AwsCloud:
        """A worker with options."""
        return AwsCloud(AwsOptions(endpoint_url=self.ec2.url, **options), clock=self.clock.clock)

    def worker(self) -> Machines:
        return self.aws()

    def hide_new(self, calls: int) -> None:
        self.ec2.conditions.hidden_for = calls

    def end_slowly(self, calls: int) -> None:
        self.ec2.conditions.shutting_down_for = calls

    def lose_reply(self, verb: str) -> None:
        self.ec2.lose_reply(_ACTIONS[verb])

    def throttle(self, verb: str, times: int) -> None:
        self.ec2.throttle(_ACTIONS[verb], times)

    def deny(self, verb: str) -> str:
        action = f"ec2:{_ACTIONS[verb]}"
        self.ec2.conditions.denied.add(action)
        return action

    def forbid_launches(self) -> str:
        self.ec2.conditions.forbidden.add("ec2:RunInstances")
        return "with an explicit deny in a service control policy"

    def set_quota(self, vcpus: int) -> None:
        self.ec2.conditions.vcpu_quota = vcpus

    def fill(self, region: str, *, all_zones: bool) -> None:
        name = region.partition(":")[2]
        self.ec2.conditions.full |= {name + letter for letter in ("abcdef" if all_zones else "a")}

    def empty(self) -> None:
        self.ec2.conditions.full.clear()

    def unknown_id(self, instance: Instance) -> str:
        return "i-" + "0" * 17

    def end_by_hand(self, instance: Instance) -> None:
        self.ec2.end_by_hand(instance.cloud_id)

    def leave_a_disk(self, instance: Instance) -> None:
        machine = self._moto(instance.region).get_instance(instance.cloud_id)
        for _, device in machine.block_device_mapping.items():
            device.delete_on_termination = False
            volume = machine.ec2_backend.volumes[device.volume_id]
            volume.attachment.delete_on_termination = False

    def leave_an_interface(self, instance: Instance) -> None:
        """Its network interface stays when it ends."""
        machine = self._moto(instance.region).get_instance(instance.cloud_id)
        interface = machine.nics[0]
        interface.delete_on_termination = False
        machine.detach_eni(interface)
        # moto looks at it.
        machine.nics[0] = interface

    def make_group(self, name: str) -> Any:
        """Somebody else's security group."""
        return self._moto(self.region).create_security_group(name, "somebody else's")

    def launch_foreign(self, name: str) -> None:
        group = self.make_group("theirs")
        self._foreign = (self._run("t3.micro", group, name), group)

    def run_theirs(self, *types: str) -> None:
        """Somebody else's instances."""
        group = self.make_group("theirs")
        for instance_type in types:
            self._run(instance_type, group, "theirs")

    def _run(self, instance_type: str, group: Any, name: str) -> Any:
        kept = self._moto(self.region).run_instances(
            "ami-1",
            1,
            "",
            [group.name],
            instance_type=instance_type,
            is_instance_type_default=False,
            region_name=self.region.partition(":")[2],
            tags={"instance": {"Name": name}},
        )
        return kept.instances[0]

    def foreign_is_there(self) -> bool:
        assert self._foreign is not None
        instance, group = self._foreign
        return (
            instance.state == "running"
            and not group.ingress_rules
            and self._moto(self.region).get_security_group_from_id(group.id) is not None
        )

    def firewall(self, region: str) -> set[Ingress]:
        return {
            Ingress(int(first), int(last), source)
            for _, first, last, source in self.ec2.open_to(region.partition(":")[2])
        }

    def name_of(self, resource: FleetResource) -> str:
        return _KINDS[resource.kind]

    def launches(self) -> int:
        return sum(
            "skyplane:fleet" in {tag["key"] for tag in one.get_tags()}
            for one in self.ec2.ever_launched()
        )

    def leftovers(self) -> dict[str, list[str]]:
        return self.ec2.leftovers()

    def set_spot_quota(self, vcpus: int) -> None:
        self.ec2.conditions.spot_quota = vcpus

    def set_quota_of(self, region: str, vcpus: int) -> None:
        name = region.partition(":")[2]
        self.ec2.conditions.quotas[name, ON_DEMAND_QUOTA] = vcpus

    @contextmanager
    def instance_profile(self, name: str, role: str = "skyplane-gateway") -> Iterator[None]:
        """A profile of this name, with the role that the documented policy allows to pass."""
        iam = boto3.client("iam", endpoint_url=self.ec2.url, region_name="us-east-1")
        iam.create_role(RoleName=role, AssumeRolePolicyDocument="{}")
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
        try:
            yield
        finally:
            iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role)
            iam.delete_instance_profile(InstanceProfileName=name)
            iam.delete_role(RoleName=role)

    def subnets(self) -> list[tuple[str, str]]:
        """Id and zone of the default subnets, by zone."""
        found = self._moto(self.region).get_default_subnets()
        return sorted(((one.id, zone) for zone, one in found.items()), key=lambda one: one[1])

    def make_subnet(self, cidr: str) -> tuple[str, str]:
        """A VPC and a subnet of it: their ids."""
        moto = self._moto(self.region)
        vpc = moto.create_vpc(cidr)
        subnet = moto.create_subnet(vpc.id, cidr, availability_zone="eu-west-3a")
        return vpc.id, subnet.id

    def remove_default_subnets(self) -> None:
        moto = self._moto(self.region)
        for subnet_id, _ in self.subnets():
            moto.delete_subnet(subnet_id)

    def show_old_rules(self, new: Ingress) -> None:
        """Another worker adds a rule; the next description does not show it."""
        self.ec2.show_old_rules()
        (group,) = (
            group
            for groups in self._moto(self.region).groups.values()
            for group in groups.values()
            if group.name != "default"
        )
        self._moto(self.region).authorize_security_group_ingress(
            group.id, "tcp", new.first_port, new.last_port, [{"CidrIp": new.source_cidr}]
        )

    def make_image(self, architecture: str) -> str:
        """The id of an own image, whose root device is `/dev/sda1`."""
        moto = self._moto(self.region)
        image = moto.register_image("own")
        image.architecture, image.root_device_name = architecture, "/dev/sda1"
        return str(image.id)

    def make_parameter(self, name: str, value: str) -> None:
        """An SSM parameter of the region."""
        # The policy of fleets lets nobody write one.
        moto = ssm_backends[DEFAULT_ACCOUNT_ID][self.region.partition(":")[2]]
        moto.put_parameter(
            name,
            description="",
            value=value,
            parameter_type="String",
            allowed_pattern="",
            keyid="",
            overwrite=False,
            tags=[],
            data_type="text",
            tier=None,
            policies=None,
        )

    def _moto(self, region: str) -> Any:
        return backend_of(region.partition(":")[2])


@contextmanager
def aws_harness(
    machines: MachineBooter | None = None, *, also: Iterable[str] = ()
) -> Iterator[AwsHarness]:
    """Args: `also` are actions besides those of the documented policy."""
    opened = open_ec2(machines, deployments=_DEPLOYMENTS, also=also)
    with opened as ec2, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "strict")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
        yield AwsHarness(ec2)
