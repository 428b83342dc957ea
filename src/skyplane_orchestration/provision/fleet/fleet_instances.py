"""The instances of one fleet that comes up: which ones exist, and the launch of missing ones."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import (
    CloudAccessDenied,
    ConfigurationInvalid,
    LaunchRefused,
    NotAuthorised,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import FleetInstance
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.launching import oldest_first
from skyplane_orchestration.provision.fleet.machines import FleetTags, Instance, LaunchRequest
from skyplane_orchestration.provision.fleet.teardown import end_fleet, end_instances
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import FleetSpec

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: Errors of a launch after which no instance can appear.
_REFUSALS: Final = (CloudAccessDenied, ConfigurationInvalid, LaunchRefused)


class FleetInstances:
    """The instances of a fleet, as one call of `ensure` sees and launches them.

    Args:
        instances: region tag -> the names of its instances.
    """

    def __init__(
        self,
        spec: FleetSpec,
        instances: Mapping[str, Sequence[str]],
        authority: Authority,
        context: FleetContext,
    ) -> None:
        self._spec = spec
        self._authority = authority
        self._context = context
        self.regions = tuple(instances)
        self.region_of = {name: region for region, group in instances.items() for name in group}
        # Launch id -> region of the launches of this call that may have an instance.
        self._own: dict[str, str] = {}
        #: Instances whose last launch was one of this call.
        self.own_names: set[str] = set()
        # Instance -> how many of that name the fleet has had.
        self._launches: dict[str, int] = {}
        # Cloud id -> what this call has launched, with the wall time of the launch.
        self._billed: dict[str, FleetInstance] = {}
        # Instance -> the one that was launched last, and when, until its cloud shows it.
        self._fresh: dict[str, tuple[Instance, float]] = {}

    def is_own(self, instance: Instance) -> bool:
        """Whether this call has launched an instance."""
        return instance.launch_id in self._own

    def current(self, *, ends_others: bool = True) -> dict[str, Instance]:
        """Name -> the instance of that name; ends superfluous ones, unless that has to wait.

        Raises ConfigurationInvalid: the fleet belongs to another deployment.
        """
        found = self._context.clouds.describe(self._spec.key, self.regions)
        seen: dict[str, int] = {}
        alive: dict[str, list[Instance]] = {}
        for instance in found:
            seen[instance.instance] = seen.get(instance.instance, 0) + 1
            if instance.is_alive:
                if (owner := instance.tags.deployment) != self._spec.deployment:
                    raise ConfigurationInvalid(
                        f"fleet {self._spec.key} belongs to deployment {owner!r},"
                        f" not to {self._spec.deployment!r}"
                    )
                alive.setdefault(instance.instance, []).append(instance)
        for name, count in seen.items():
            self._launches[name] = max(self._launches.get(name, 0), count)
        # Launched instances that the cloud does not show yet.
        shown, now_s = {one.cloud_id for one in found}, self._context.clock.monotonic()
        for name, (instance, launched_s) in list(self._fresh.items()):
            if instance.cloud_id in shown:
                del self._fresh[name]
            elif now_s < launched_s + self._context.visible_within_s:
                alive.setdefault(name, []).append(instance)
        current, surplus = {}, []
        for name, several in alive.items():
            first, *others = oldest_first(several)
            surplus += others if name in self.region_of else several
            if name in self.region_of:
                current[name] = first
        if ends_others:
            self._context.clouds.terminate(surplus)
        return current

    def end_dropped(self) -> None:
        """Begin to end the instances of regions that an earlier plan of the fleet had."""
        clouds = self._context.clouds
        try:
            # All regions: a search of some does not pass over those that a policy denies.
            dropped = [
                one
                for one in clouds.describe(self._spec.key, clouds.regions())
                if one.is_alive
                and one.region not in self.regions
                and one.tags.deployment == self._spec.deployment
            ]
            clouds.terminate(dropped)
        except SkyplaneError as error:
            # They end by themselves, since nobody renews their lease.
            log.warning(
                "fleet %s: instances of an earlier plan may still run: %s", self._spec.key, error
            )
            return
        for one in dropped:
            log.info(
                "fleet %s: ending %s, which its plan has no more", self._spec.key, one.instance
            )

    def launch_missing(
        self, current: Mapping[str, Instance], tags: FleetTags
    ) -> dict[str, Instance]:
        """`current` and the instances that it lacks. Raises LaunchRefused, as `Machines.launch`."""
        missing = [name for name in self.region_of if name not in current]
        if missing:
            log.info(
                "fleet %s: %d of %s found, launching %d",
                self._spec.key,
                len(current),
                counted(len(self.region_of), "instance"),
                len(missing),
            )
        try:
            launched = in_parallel(missing, lambda name: self._launch(name, tags))
        except LaunchRefused as error:
            got = {*current, *self._fresh}
            error.launched = sum(self.region_of[name] == error.region for name in got)
            raise
        self.own_names.difference_update(missing)
        self.own_names.update(one.instance for one in launched if self.is_own(one))
        return {**current, **dict(zip(missing, launched, strict=True))}

    def _launch(self, name: str, tags: FleetTags) -> Instance:
        region = self.region_of[name]
        group = self._spec.plan.instances[region]
        launch_id = secrets.token_hex(16)
        request = LaunchRequest(
            tags=tags,
            instance=name,
            region=region,
            instance_type=group.type,
            launch_id=launch_id,
            launch_number=self._launches.get(name, 0),
            user_data=self._context.boot.user_data(
                self._authority,
                tags,
                instance=name,
                launch_id=launch_id,
                start_within_s=self._spec.times.start_within_s,
            ),
            is_end=region in self._spec.plan.ends,
            network_tier=group.network_tier,
        )
        # Noted before the launch, so that an interruption in between is undone too.
        self._own[launch_id] = region
        began_unix_s = self._context.clock.wall()
        try:
            instance = self._context.clouds.of(region).launch(request)
        except _REFUSALS as error:
            del self._own[launch_id]
            if isinstance(error, LaunchRefused):
                error.region, error.instance_type = region, request.instance_type
            raise
        self._launches[name] = request.launch_number + 1
        if instance.launch_id != launch_id:
            del self._own[launch_id]  # Another worker has launched it.
        else:
            billed = FleetInstance(name, region, instance.cloud_id, began_unix_s)
            self._billed[instance.cloud_id] = billed
        self._fresh[name] = (instance, self._context.clock.monotonic())
        return instance

    def billed(self, members: Iterable[Instance]) -> tuple[FleetInstance, ...]:
        """The members, and what this call has launched besides, which has ended by now."""
        by_id = {
            one.cloud_id: self._billed.get(
                one.cloud_id,
                FleetInstance(
                    one.instance,
                    one.region,
                    one.cloud_id,
                    # A cloud may not tell it; no instance is older than its fleet.
                    max(one.launched_unix_s, float(one.tags.created_unix_s)),
                ),
            )
            for one in members
        }
        now_s = self._context.clock.wall()
        ended = [
            replace(one, ended_unix_s=now_s)
            for cloud_id, one in self._billed.items()
            if cloud_id not in by_id
        ]
        return (*by_id.values(), *ended)

    def pin(self, instance: Instance, key_id: str) -> None:
        """Pin the key of an instance, unless another worker has pinned another one meanwhile.

        Tags have no condition on every cloud, so the tag is read before and after.

        Raises NotAuthorised: two machines have answered as this instance.
        """
        self._require_no_other(instance, key_id)
        self._context.clouds.of(instance.region).pin_key(instance, key_id)
        self._require_no_other(instance, key_id)

    def _require_no_other(self, instance: Instance, key_id: str) -> None:
        for one in self._context.clouds.describe(self._spec.key, [instance.region]):
            if one.cloud_id == instance.cloud_id and one.key_id not in ("", key_id):
                raise NotAuthorised(
                    f"instance {instance.instance} at {instance.address} has shown the key"
                    f" {key_id} to this worker, and another one ({one.key_id}) to another worker:"
                    " another machine has read its user data and answers in its place; end the"
                    " instance"
                )

    def last_words(self, name: str) -> tuple[str, str]:
        """Why the newest instance of a name has ended, and the end of its console output.

        Both are empty if the cloud does not tell.
        """
        region = self.region_of[name]
        cloud = self._context.clouds.of(region)
        named: list[Instance] = []
        try:
            found = cloud.describe(self._spec.key, [region])
            named = [instance for instance in found if instance.instance == name]
            named.sort(key=lambda instance: instance.launched_unix_s)
            tail = cloud.console_tail(named[-1], 4096).strip() if named else ""
        except SkyplaneError as error:
            log.warning("cannot find out why %s has failed: %s", name, error)
            tail = ""
        return (named[-1].why_ended if named else ""), tail

    def end(self, chosen: Collection[Instance]) -> None:
        """End instances and wait for it. Raises TeardownIncomplete."""
        ids = {instance.cloud_id for instance in chosen}
        end_instances(
            self._spec.key,
            self.regions,
            self._context,
            which=lambda instance: instance.cloud_id in ids,
        )

    def undo(self) -> None:
        """End what this call has launched, and the rest of a fleet without other instances.

        Raises TeardownIncomplete.
        """
        key, context = self._spec.key, self._context
        try:
            end_instances(key, self.regions, context, which=self.is_own, expected=self._own)
            if not any(one.is_alive for one in context.clouds.describe(key, self.regions)):
                end_fleet(key, self.regions, context)
        except TeardownIncomplete:
            raise
        except SkyplaneError as error:
            raise TeardownIncomplete(
                f"its instances may still run: {error}; run teardown, or they end by themselves at"
                " the hard end"
            ) from error
