"""Instances of the strict EC2: client tokens, quotas, capacity, states that last, machines."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from dataclasses import dataclass
from typing import Any, Final

from strict_clouds.aws_wire import Answer, AwsError, Request, xml_answer
from strict_clouds.ec2_groups import present_rules
from strict_clouds.ec2_moto import (
    ON_DEMAND_QUOTA,
    SPOT_QUOTA,
    Conditions,
    Forward,
    Rule,
    Visibility,
    all_instances,
    asked_tags,
    backend_of,
    backends,
    check_tags,
    cpu_options_of,
    texts_in,
    vcpus_of,
)
from strict_clouds.firewall import IngressRule
from strict_clouds.machines import Machine, MachineBooter
from strict_clouds.usage import Usage

MOST_USER_DATA_BYTES: Final = 16384

_PENDING, _RUNNING, _SHUTTING_DOWN = ("pending", 0), ("running", 16), ("shutting-down", 32)


@dataclass
class _Launch:
    """A client token's request in one zone."""

    digest: str
    instance_id: str = ""
    answer: Answer | None = None


class InstanceRules:
    """Launches and ends instances.

    Args:
        machines: boots a machine for each instance; None for instances without one.
    """

    def __init__(
        self, conditions: Conditions, visibility: Visibility, machines: MachineBooter | None
    ) -> None:
        self._conditions = conditions
        self._visibility = visibility
        self._machines = machines
        self.booted: dict[str, Machine] = {}
        self.usage = Usage()
        self._launches: dict[tuple[str, str, str], _Launch] = {}
        self._pending: dict[str, int] = {}
        self._ending: dict[str, int] = {}
        self._not_before_s: dict[str, float] = {}
        self._addresses: dict[str, str | None] = {}
        self.rules: dict[str, Rule] = {
            "RunInstances": self._run_instances,
            "DescribeInstances": self._describe_instances,
            "TerminateInstances": self._terminate_instances,
            "GetConsoleOutput": self._console_output,
        }

    def alive(self, region: str = "") -> list[Any]:
        """moto's instances that have not ended, of one region or of all."""
        return [
            instance
            for name, backend in backends()
            if region in ("", name)
            for instance in backend.all_instances()
            if instance.state != "terminated"
        ]

    def end_by_hand(self, instance_id: str) -> None:
        """As somebody does in the console; takes effect at once."""
        self._shut_down(instance_id)
        self._really_end(self._instance(instance_id), "Client.UserInitiatedShutdown")

    def _instance(self, instance_id: str) -> Any:
        return next(one for one in all_instances() if one.id == instance_id)

    def _run_instances(self, request: Request, forward: Forward) -> Answer:
        backend = backend_of(request.region)
        token = str(request.parameters.get("ClientToken", ""))
        if not token or len(token) > 64:
            raise AwsError("InvalidParameterValue", "the strict fake wants a client token")
        subnet = backend.get_subnet(request.parameters["NetworkInterface.1.SubnetId"])
        zone = subnet.availability_zone
        digest = _digest(request)
        known = self._launches.get((request.region, zone, token))
        if known is not None and known.digest != digest:
            raise AwsError("IdempotentParameterMismatch")
        if known is not None and known.answer is not None:
            return self._again(known.instance_id, known.answer)
        # Other requests with this token are refused from now on, even if this one fails.
        launch = self._launches[request.region, zone, token] = _Launch(digest)
        check_tags(request)
        data = base64.b64decode(str(request.parameters.get("UserData", "")))
        if len(data) > MOST_USER_DATA_BYTES:
            raise AwsError("InvalidParameterValue", "User data is limited to 16384 bytes")
        for group_id in request.listed("NetworkInterface.1.SecurityGroupId"):
            self._visibility.require(group_id, "InvalidGroup.NotFound")
            group = backend.get_security_group_from_id(group_id)
            if group is None:
                raise AwsError("InvalidGroup.NotFound")
            if group.vpc_id != subnet.vpc_id:
                raise AwsError("InvalidParameter", "group and subnet are of different VPCs")
        self._check_room(request, zone)
        answer = forward()
        if answer.status != 200:
            return answer
        (instance_id,) = texts_in(answer.text, "instanceId")
        launch.instance_id = instance_id
        self._launched(request, backend.get_instance(instance_id), data.decode())
        # An instance begins without a public address.
        text = answer.text.replace("<code>16</code>", "<code>0</code>")
        text = text.replace("<name>running</name>", "<name>pending</name>")
        text = re.sub("<ipAddress>[^<]*</ipAddress>", "", text)
        launch.answer = Answer(200, text.encode(), answer.content_type)
        return launch.answer

    def _again(self, instance_id: str, answer: Answer) -> Answer:
        """The answer to a request that has succeeded before."""
        if self._instance(instance_id).state in ("shutting-down", "terminated"):
            raise AwsError("IdempotentInstanceTerminated")
        return answer

    def require_offered(self, request: Request) -> None:
        """Raises AwsError: the zone of the subnet never has such an instance."""
        named = ("SubnetId", "NetworkInterface.1.SubnetId")
        subnet_id = next(filter(None, map(request.parameters.get, named)), None)
        if subnet_id is None or not self._conditions.not_offered:
            return
        zone = backend_of(request.region).get_subnet(subnet_id).availability_zone
        if f"{zone}/{request.parameters['InstanceType']}" in self._conditions.not_offered:
            raise AwsError("Unsupported", "not supported in your requested Availability Zone")

    def _check_room(self, request: Request, zone: str) -> None:
        """Quota and capacity."""
        is_spot = request.parameters.get("InstanceMarketOptions.MarketType") == "spot"
        kind = request.parameters["InstanceType"]
        used = sum(
            vcpus_of(one.instance_type)
            for one in self.alive(request.region)
            if (one.lifecycle == "spot") == is_spot
        )
        code = SPOT_QUOTA if is_spot else ON_DEMAND_QUOTA
        if used + vcpus_of(kind) > self._conditions.quota(request.region, code):
            raise AwsError("MaxSpotInstanceCountExceeded" if is_spot else "VcpuLimitExceeded")
        if not self._conditions.full.isdisjoint((zone, f"{zone}/{kind}")):
            raise AwsError("InsufficientInstanceCapacity", status=500)

    def _launched(self, request: Request, instance: Any, user_data: str) -> None:
        """What moto leaves undone: tags of interfaces, states that last, the machine."""
        named = asked_tags(request, "network-interface")
        for interface in instance.nics.values():
            interface.add_tags(named)
        for _, device in instance.block_device_mapping.items():
            volume = instance.ec2_backend.volumes[device.volume_id]
            volume.attachment.delete_on_termination = device.delete_on_termination
        if self._machines is not None:
            machine = self.booted[instance.id] = self._machines.boot(user_data)
            interface = instance.nics[0]
            if interface.public_ip:
                interface.public_ip = machine.address
            else:
                interface.private_ip_address = machine.address
            (volume,) = instance.block_device_mapping.values()
            self.usage.begin(
                instance.id,
                f"aws:{request.region}",
                instance.instance_type,
                disk_gib=int(instance.ec2_backend.volumes[volume.volume_id].size),
                has_address=bool(interface.public_ip),
                address=machine.address,
            )
        self._visibility.hide(instance.id, self._conditions.hidden_for)
        if self._conditions.pending_for:
            self._pending[instance.id] = self._conditions.pending_for
            self._addresses[instance.id] = instance.nics[0].public_ip
            instance.nics[0].public_ip = None
            _set_state(instance, _PENDING)

    def _describe_instances(self, request: Request, forward: Forward) -> Answer:
        backend = backend_of(request.region)
        unseen = {
            name: kept
            for name, kept in backend.reservations.items()
            if any(not self._visibility.sees(one.id) for one in kept.instances)
        }
        for name in unseen:
            del backend.reservations[name]
        for instance in backend.all_instances():
            instance.cpu_options = cpu_options_of(instance.instance_type)
        answer = forward()
        backend.reservations.update(unseen)
        for instance in backend.all_instances():
            self._described(instance)
        return answer

    def _described(self, instance: Any) -> None:
        """One description nearer to the next state."""
        if instance.id in self._pending:
            self._pending[instance.id] -= 1
            if self._pending[instance.id] <= 0:
                del self._pending[instance.id]
                instance.nics[0].public_ip = self._addresses.pop(instance.id)
                _set_state(instance, _RUNNING)
        is_early = time.monotonic() < self._not_before_s.get(instance.id, 0.0)
        if instance.id in self._ending and not is_early:
            self._ending[instance.id] -= 1
            if self._ending[instance.id] <= 0:
                self._really_end(instance, "Client.UserInitiatedShutdown")

    def advance(self) -> None:
        """End the instances whose machines have powered themselves off."""
        for instance_id, machine in list(self.booted.items()):
            instance = self._instance(instance_id)
            if instance.state in ("pending", "running") and not machine.is_running:
                if instance.instance_initiated_shutdown_behavior == "terminate":
                    self._really_end(instance, "Client.InstanceInitiatedShutdown")
                else:
                    instance.stop()

    def set_firewalls(self) -> None:
        """Give the machines the rules of their instances' groups."""
        for instance_id, machine in self.booted.items():
            rules = {
                IngressRule(int(first), int(last), source)
                for group in self._instance(instance_id).nics[0].group_set
                for protocol, first, last, source in present_rules(group)
                if protocol == "tcp"
            }
            machine.allow(rules)

    def _terminate_instances(self, request: Request, _: Forward) -> Answer:
        backend = backend_of(request.region)
        names = request.listed("InstanceId")
        known = {one.id: one for one in backend.all_instances()}
        for name in names:
            if name not in known:
                raise AwsError("InvalidInstanceID.NotFound")
            self._visibility.require(name, "InvalidInstanceID.NotFound")
        for name in names:
            if known[name].state == "terminated" or name in self._ending:
                continue
            self._shut_down(name)
            self._pending.pop(name, None)
            if self._conditions.shutting_down_for:
                self._ending[name] = self._conditions.shutting_down_for
                self._not_before_s[name] = time.monotonic() + self._conditions.ending_s
                _set_state(known[name], _SHUTTING_DOWN)
            else:
                self._really_end(known[name], "Client.UserInitiatedShutdown")
        rows = "".join(
            f"<item><instanceId>{name}</instanceId><currentState><code>32</code>"
            "<name>shutting-down</name></currentState></item>"
            for name in names
        )
        return xml_answer(request.action, f"<instancesSet>{rows}</instancesSet>")

    def _really_end(self, instance: Any, reason: str) -> None:
        self._ending.pop(instance.id, None)
        self._pending.pop(instance.id, None)
        machine = self.booted.get(instance.id)
        if machine is not None and machine.is_running:
            machine.cut_power()
        self.usage.end(instance.id)
        instance.terminate()
        instance.state_reason.code = reason
        instance.state_reason.message = f"{reason}: strict fake"

    def _shut_down(self, instance_id: str) -> None:
        machine = self.booted.get(instance_id)
        # EC2 does not bill an instance that is shutting down.
        self.usage.end(instance_id)
        if machine is not None and machine.is_running:
            machine.shut_down()

    def _console_output(self, request: Request, _: Forward) -> Answer:
        name = request.parameters["InstanceId"]
        self._visibility.require(name, "InvalidInstanceID.NotFound")
        backend = backend_of(request.region)
        instance = {one.id: one for one in backend.all_instances()}.get(name)
        if instance is None:
            raise AwsError("InvalidInstanceID.NotFound")
        is_latest = str(request.parameters.get("Latest", "")).lower() == "true"
        if is_latest and instance.instance_type in self._conditions.old_types:
            raise AwsError("UnsupportedOperation")
        machine = self.booted.get(name)
        output = machine.console() if machine is not None else ""
        text = base64.b64encode(output.encode()).decode()
        return xml_answer(request.action, f"<instanceId>{name}</instanceId><output>{text}</output>")


def _set_state(instance: Any, state: tuple[str, int]) -> None:
    instance._state.name, instance._state.code = state


def _digest(request: Request) -> str:
    """Of the parameters that have to be the same when a client token is repeated."""
    ignored = ("Action", "Version", "ClientToken", "NetworkInterface.1.SubnetId")
    kept = {name: value for name, value in request.parameters.items() if name not in ignored}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
