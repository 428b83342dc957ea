"""Brings one fleet of instances up: adopts those that run, launches missing ones, connects all.

No lock protects a fleet in a cloud. Two workers that bring up the same fleet find the same
instances by their tags and keep the same ones of those that exist twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.errors import (
    CloudUnavailable,
    FleetLost,
    GatewayUnreachable,
    LaunchRefused,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import (
    INTERNAL_HOST,
    STORE_IDENTITY,
    Fleet,
    GatewayHandle,
    instance_of,
)
from skyplane_orchestration.provision.control_sessions import (
    ControlSessions,
    send_topology,
    wait_connected,
)
from skyplane_orchestration.provision.fleet.admission import Admission
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.fleet_instances import FleetInstances
from skyplane_orchestration.provision.fleet.ingress_rules import peer_ingress
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT, FleetTags, Instance
from skyplane_orchestration.provision.fleet.running_plan import keep_plan
from skyplane_orchestration.provision.fleet.teardown import end_instances
from skyplane_orchestration.provision.gateway_settings import gateway_config, processes_per_instance
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.provision.routes import (
    build_routes,
    dialed,
    edges_to_probe,
    peers_of,
    probe_routes,
    split_into_processes,
)
from skyplane_orchestration.timing import timed

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: Instances that end sooner are not adopted: they would end in mid-transfer.
_LEAST_LEFT_S: Final = 600.0
#: The same for fleets with a short life.
_LEAST_LEFT_SHARE: Final = 0.1


@dataclass
class BringUp:
    """Brings up a fleet; see `Provisioner.ensure`. Its document lacks its pages of web consoles.

    Args:
        instances: region tag -> the names of its instances.
        began_s: monotonic time since which the caller waits.
    """

    spec: FleetSpec
    instances: Mapping[str, Sequence[str]]
    authority: Authority
    context: FleetContext
    sessions: ControlSessions
    admission: Admission
    began_s: float
    _is_prepared: bool = False
    #: Cloud id -> the id of the key, for instances that this call has enrolled.
    _keys: dict[str, str] = field(default_factory=dict)
    #: Cloud id -> since when this call knows an instance.
    _seen_since_s: dict[str, float] = field(default_factory=dict)
    #: Instances that this call has launched a second time.
    _replaced: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.members = FleetInstances(self.spec, self.instances, self.authority, self.context)
        self._deadline_s = self.context.clock.monotonic() + self.context.options.ready_timeout_s

    def run(self) -> Fleet:
        """An error or an interruption ends the instances that this call has launched."""
        try:
            return self._run()
        except BaseException as error:
            self._undo(error)
            if isinstance(error, LaunchRefused):
                error.ended = self.members.billed(())
            raise

    def _run(self) -> Fleet:
        # Of a fleet with another secret none may end.
        found = self.members.current(ends_others=False)
        is_gone = self.spec.must_exist and not found
        # A teardown deletes the firewall too; the instances may have ended by themselves.
        if is_gone and not self.context.clouds.leftovers(self.spec.key, tuple(self.instances)):
            raise FleetLost(f"fleet {self.spec.key} was torn down")
        self.tags = self._tags_of(found)
        self.nodes = split_into_processes(self.instances, self.tags.processes)
        routes = dialed(build_routes(self.spec.plan, self.nodes), self.context.clouds.reach_of)
        self._peers = peers_of(self.nodes)
        self.admission.admit_to(found.values())
        # A fleet with another secret is refused before it gets this worker's firewall.
        enrolled = [one for one in found.values() if one.key_id and one.address]
        in_parallel(enrolled, lambda one: self._all_answer(one, self._nodes_of(one)))
        if found and not self.spec.must_exist:  # A repair has the plan that the fleet had.
            self.members.end_dropped()
        self._is_prepared = True
        self.context.clouds.create_firewalls(self.tags, tuple(self.instances))
        self.admission.admit(self.tags, self.instances)
        with timed(f"provision: {counted(len(self.members.region_of), 'instance')}"):
            placed = self._wait_until_ready()
        handles = {
            node: self._handle(node, region, placed[instance_of(node)])
            for region, nodes in self.nodes.items()
            for node in nodes
        }
        probes = edges_to_probe(self.spec.plan) if self.spec.is_to_probe else ()
        clouds = self.context.clouds
        probed = probe_routes(probes, self.nodes, routes)
        clouds.set_ingress(self.tags, peer_ingress(routes, handles, clouds.reach_of, probed))
        keep_plan(self.spec.plan, handles.values(), self.sessions)
        with timed("provision: connecting them"):
            send_topology(routes, handles, self.sessions, self)
            wait_connected(handles, self.sessions, self, lambda: self._alive_nodes(handles))
        return Fleet(
            key=self.spec.key,
            generation=self.spec.generation,
            deployment=self.spec.deployment,
            provisioner=self.context.name,
            plan=self.spec.plan,
            gateways=tuple(handles.values()),
            routes=tuple(route.to_dict() for route in routes),
            host="",
            provision_s=self.context.clock.monotonic() - self.began_s,
            hard_end_unix_s=float(_oldest_tags(placed.values()).hard_end_unix_s),
            instances=self.members.billed(placed.values()),
        )

    def _undo(self, cause: BaseException) -> None:
        """End what `run` has launched. Raises TeardownIncomplete, which also tells the cause."""
        if not self._is_prepared:
            return
        try:
            self.members.undo()
        except TeardownIncomplete as left:
            raise TeardownIncomplete(
                f"fleet {self.spec.key} did not come up: {str(cause) or type(cause).__name__};"
                f" and {left.message}"
            ) from cause

    # -- the deadline of `send_topology` and `wait_connected`

    def pause(self, node: str, what: str) -> None:
        """Sleep until the next poll. Raises ProvisionFailed for `node` after the deadline."""
        if self.context.clock.monotonic() >= self._deadline_s:
            raise self.failure(node, f"{what} within {self.context.options.ready_timeout_s:g} s")
        self.context.pause()

    def failure(self, node: str, what: str) -> ProvisionFailed:
        """The error of a gateway, with the end of its instance's console output."""
        why, tail = self.members.last_words(instance_of(node))
        because = f" ({why})" if why else ""
        said = f"the end of its console output:\n{tail}" if tail else "it has no console output"
        return ProvisionFailed(f"gateway {node} of fleet {self.spec.key} {what}{because}; {said}")

    # -- instances

    def _tags_of(self, found: Mapping[str, Instance]) -> FleetTags:
        """The tags of the fleet's instances, or those of a new fleet."""
        now_s = int(self.context.clock.wall())
        life_s = self.spec.times.hard_end_s
        least_s = min(_LEAST_LEFT_S, life_s * _LEAST_LEFT_SHARE)
        if found and (tags := _oldest_tags(found.values())).hard_end_unix_s > now_s + least_s:
            return tags
        if found:
            log.warning("fleet %s is at its hard end, and is launched anew", self.spec.key)
            end_instances(self.spec.key, tuple(self.instances), self.context)
        return FleetTags(
            fleet_key=self.spec.key,
            deployment=self.spec.deployment,
            generation=self.spec.generation,
            created_unix_s=now_s,
            hard_end_unix_s=now_s + int(life_s),
            processes=self._processes(),
        )

    def _processes(self) -> int:
        """Gateways of each instance: as many as the smallest one has vCPUs."""
        given = self.context.options.processes_per_instance
        if given is not None:
            return given

        def vcpus(region: str) -> int:
            kind = self.spec.plan.instances[region].type
            return self.context.clouds.of(region).vcpus(region, kind)

        return processes_per_instance(None, 1, min(in_parallel(self.instances, vcpus)))

    # -- gateways

    def _wait_until_ready(self) -> dict[str, Instance]:
        """Launch, enrol and adopt until every instance has working gateways."""
        ready: dict[str, Instance] = {}
        while True:
            try:
                current = self.members.current()
            except CloudUnavailable as error:
                log.warning("fleet %s: %s; trying again", self.spec.key, error)
                self.pause(next(iter(self.members.region_of)), "cannot be looked for")
                continue
            for name in sorted(self.members.own_names.difference(current)):
                self._note_replacement(name, "ended")
            lost = [
                instance
                for name, instance in current.items()
                if name not in ready and self._is_lost(instance)
            ]
            if lost:
                self._replace(lost)
                continue
            current = self.members.launch_missing(current, self.tags)
            ready = {
                name: instance
                for name, instance in ready.items()
                if current[name].cloud_id == instance.cloud_id
            }
            missing = [current[name] for name in self.members.region_of if name not in ready]
            placed = [instance for instance in missing if instance.address]
            keys = in_parallel(placed, self._make_ready)
            for instance, key_id in zip(placed, keys, strict=True):
                if key_id:
                    ready[instance.instance] = replace(instance, key_id=key_id)
            waiting = [name for name in self.members.region_of if name not in ready]
            if not waiting:
                return ready
            self._admit_again()
            self.pause(waiting[0], "did not become ready")

    def _admit_again(self) -> None:
        """This worker may get out by another address by now, or by one of several."""
        try:
            self.admission.admit(self.tags, self.instances)
        except SkyplaneError as error:
            log.warning("fleet %s may not let this worker in: %s", self.spec.key, error)

    def _note_replacement(self, name: str, what: str, why: str = "") -> None:
        """Allow one replacement of an instance that this call has launched.

        Args:
            why: what its cloud says of that.

        Raises ProvisionFailed: it has been replaced before.
        """
        if name in self._replaced:
            raise self.failure(name, what)
        because = f" ({why})" if why else ""
        log.warning("fleet %s: replacing %s, which %s%s", self.spec.key, name, what, because)
        self._replaced.add(name)
        self.members.own_names.discard(name)

    def _replace(self, lost: Sequence[Instance]) -> None:
        """End instances whose gateways do not answer."""
        for instance in lost:
            if self.members.is_own(instance):
                limit_s = self.context.options.boot_timeout_s
                what = f"did not answer within {limit_s:g} s{self._hint(instance)}"
                self._note_replacement(instance.instance, what, instance.why_ended)
            else:
                log.warning(
                    "fleet %s: replacing %s, which does not answer",
                    self.spec.key,
                    instance.instance,
                )
        self.members.end(lost)

    def _hint(self, instance: Instance) -> str:
        """What may keep this worker from an instance that it has never reached."""
        cidrs = self.context.options.control_cidrs
        is_dialed = self.context.clouds.is_dialed(self.spec.key, instance.region)
        if instance.cloud_id in self._keys or cidrs == () or not is_dialed:
            return ""
        let_in = (
            f"its firewall lets {self.admission.address} in: does this worker get out by other"
            " addresses too? Then name their range in control_cidrs"
            if cidrs is None
            else f"is this worker's address one of control_cidrs, {', '.join(cidrs)}?"
        )
        port = self.context.options.control_port
        ports = f"{port} and those above" if port == ENROLMENT_PORT else str(port)
        return (
            f" at {instance.address or 'no address'}, not even once ({let_in}. May it open"
            f" connections to port {ports}?)"
        )

    def _is_lost(self, instance: Instance) -> bool:
        """Whether an instance should have answered by now."""
        options, clock = self.context.options, self.context.clock
        since_s = self._seen_since_s.setdefault(instance.cloud_id, clock.monotonic())
        if self.members.is_own(instance):
            return clock.monotonic() > since_s + options.boot_timeout_s
        if not instance.key_id:  # Another call may be about to enrol it.
            return clock.wall() > instance.launched_unix_s + options.boot_timeout_s
        return clock.monotonic() > since_s + options.answer_timeout_s

    def _make_ready(self, instance: Instance) -> str:
        """The id of the key of an instance whose gateways answer; empty if they do not yet."""
        nodes = self._nodes_of(instance)
        key_id = self._keys.get(instance.cloud_id) or instance.key_id
        if key_id and self._all_answer(instance, nodes):
            return key_id
        configs = {node: self._config(instance, number, node) for number, node in enumerate(nodes)}
        try:
            pin = partial(self.members.pin, instance)
            key_id = self.context.boot.enrol(self.authority, instance, configs, pin)
            if key_id:
                self._keys[instance.cloud_id] = key_id
            else:  # It installs its software, for which it has the time of a boot again.
                self._seen_since_s[instance.cloud_id] = self.context.clock.monotonic()
        except GatewayUnreachable as error:
            log.debug("%s: %s", instance.instance, error)
        return ""

    def _all_answer(self, instance: Instance, nodes: Sequence[str]) -> bool:
        for number, node in enumerate(nodes):
            address = instance.control(number)
            if not self.sessions.is_usable(node, address, self.spec.times.start_within_s):
                for one in nodes:
                    self.sessions.drop(one)
                return False
        return True

    def _alive_nodes(self, handles: Mapping[str, GatewayHandle]) -> set[str]:
        try:
            current = self.members.current()
        except CloudUnavailable:
            return set(handles)  # The next look tells.
        return {node for node in handles if instance_of(node) in current}

    def _nodes_of(self, instance: Instance) -> list[str]:
        return [
            node for node in self.nodes[instance.region] if instance_of(node) == instance.instance
        ]

    def _config(self, instance: Instance, number: int, node: str) -> GatewayConfig:
        """The configuration of a gateway. The instance fills in its directory and its address."""
        return gateway_config(
            self.spec,
            self.authority,
            node,
            self._peers[node],
            self.tags.hard_end_unix_s - self.context.clock.wall(),
            self.context.options.gateway_settings,
            directory="",
            control_host="",
            control_port=instance.control(number)[1],
            data_host=instance.data_address,
            data_port=instance.data(number)[1],
        )

    def _handle(self, node: str, region: str, instance: Instance) -> GatewayHandle:
        number = int(node.rpartition(".")[2]) if node != instance.instance else 0
        details = {"instance_id": instance.cloud_id}
        if instance.internal_address:
            details[INTERNAL_HOST] = instance.internal_address
        identity = self.context.clouds.of(region).store_identity(region)
        if identity and region in self.spec.plan.ends:
            details[STORE_IDENTITY] = identity
        return GatewayHandle(
            node=node,
            region=region,
            control=instance.control(number),
            data=instance.data(number),
            fingerprint=instance.key_id,
            details=details,
        )


def _oldest_tags(instances: Iterable[Instance]) -> FleetTags:
    """The tags of a fleet. Workers that launch at the same time write different times."""
    return min((one.tags for one in instances), key=lambda tags: tags.hard_end_unix_s)
