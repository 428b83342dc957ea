"""Ends instances, deletes what else a fleet has, and finds abandoned fleets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from skyplane_orchestration.errors import CloudUnavailable, SkyplaneError, TeardownIncomplete
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Instance,
    Machines,
)
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.parallel import answered, in_parallel

log = logging.getLogger(__name__)

#: An instance that does not end is ended again. It may have stopped by itself, and keep its disk.
_AGAIN_AFTER_S: Final = 15.0

_PAST: Final = "past its hard end"


def regions_of(
    instances: Iterable[Instance], resources: Iterable[FleetResource]
) -> tuple[str, ...]:
    """The regions that have any of them, sorted."""
    return tuple(sorted({one.region for one in instances} | {one.region for one in resources}))


def end_fleet_in(cloud: Machines, fleet_key: str, context: FleetContext) -> tuple[str, ...]:
    """End all that a fleet has in one cloud; the nodes that still ran.

    Raises TeardownIncomplete: something is left. CloudUnavailable: some regions do not answer;
    nothing is left in the others.
    """

    def look(regions: Sequence[str]) -> tuple[str, ...]:
        return regions_of(cloud.describe(fleet_key, regions), cloud.leftovers(fleet_key, regions))

    deadline_s = context.clock.monotonic() + context.options.end_timeout_s
    while True:
        try:
            regions, silent = answered(look, context.clouds.regions_of(cloud))
            break
        except CloudUnavailable as error:
            if context.clock.monotonic() >= deadline_s:
                raise
            log.warning("fleet %s: %s; trying again", fleet_key, error)
            context.pause()
    stopped = end_fleet(fleet_key, regions, context) if regions else ()
    for no_answer in silent.values():
        raise no_answer
    return stopped


def end_fleet(fleet_key: str, regions: Sequence[str], context: FleetContext) -> tuple[str, ...]:
    """End all instances of a fleet and delete the rest of it; the nodes that still ran.

    Raises TeardownIncomplete: something is left.
    """

    def end(its: Sequence[str]) -> set[str]:
        stopped = set(end_instances(fleet_key, its, context))
        deadline_s = context.clock.monotonic() + context.options.end_timeout_s
        while left := _deleted_rest(fleet_key, its, context):
            if context.clock.monotonic() >= deadline_s:
                raise TeardownIncomplete(
                    f"the instances of fleet {fleet_key} have ended, but these cannot be deleted:"
                    f" {', '.join(left)}; run teardown again"
                )
            context.pause()
            # An instance that a cloud has not shown before may keep them.
            stopped.update(end_instances(fleet_key, its, context))
        if stopped:
            log.info("fleet %s: %s ended", fleet_key, counted(len(stopped), "gateway"))
        return stopped

    return _in_each_cloud(regions, context, end)


def _in_each_cloud(
    regions: Sequence[str], context: FleetContext, end: Callable[[Sequence[str]], Collection[str]]
) -> tuple[str, ...]:
    """The nodes that `end` finds in the regions of each cloud.

    Raises the first error after all clouds have had their turn.
    """
    found = in_parallel(context.clouds.apart(regions), end)
    return tuple(sorted(node for nodes in found for node in nodes))


def _deleted_rest(fleet_key: str, regions: Sequence[str], context: FleetContext) -> tuple[str, ...]:
    """Delete what a fleet has besides instances; the names of those that are left."""
    try:
        rest = context.clouds.leftovers(fleet_key, regions)
        left = context.clouds.delete_leftovers(rest) if rest else ()
    except CloudUnavailable as error:
        log.warning("fleet %s: %s; trying again", fleet_key, error)
        return (str(error),)
    return tuple(f"{one.region} {one.kind} {one.cloud_id}" for one in left)


def end_instances(
    fleet_key: str,
    regions: Sequence[str],
    context: FleetContext,
    *,
    which: Callable[[Instance], bool] = lambda _: True,
    expected: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """End the chosen instances of a fleet and wait for their end; the nodes that still ran.

    Args:
        expected: launch id -> region of instances that a cloud may not show yet.

    Raises TeardownIncomplete; CloudUnavailable: a cloud does not answer for the whole time.
    """

    clock, options = context.clock, context.options

    def end(its: Sequence[str]) -> set[str]:
        unseen = {launch for launch, region in (expected or {}).items() if region in its}
        began_s = clock.monotonic()
        stopped: set[str] = set()
        again_after_s: dict[str, float] = {}
        while True:
            elapsed_s = clock.monotonic() - began_s
            try:
                found = [one for one in context.clouds.describe(fleet_key, its) if which(one)]
                left = [instance for instance in found if instance.state != "ended"]
                alive = [instance for instance in left if instance.is_alive]
                stopped.update(node for instance in alive for node in instance.nodes)
                due = [
                    one
                    for one in left
                    if one.is_alive or elapsed_s >= again_after_s.get(one.cloud_id, 0.0)
                ]
                context.clouds.terminate(due)
            except CloudUnavailable as error:
                if elapsed_s >= options.end_timeout_s:
                    raise
                log.warning("fleet %s: %s; trying again", fleet_key, error)
                context.pause()
                continue
            again_after_s |= {one.cloud_id: elapsed_s + _AGAIN_AFTER_S for one in due}
            unseen -= {instance.launch_id for instance in found}
            if not left and (not unseen or elapsed_s >= context.visible_within_s):
                return stopped
            if left and elapsed_s >= options.end_timeout_s:
                names = ", ".join(f"{one.region} {one.cloud_id} ({one.state})" for one in left)
                raise TeardownIncomplete(
                    f"instances of fleet {fleet_key} have not ended after"
                    f" {options.end_timeout_s:g} s: {names}; run teardown again, or they end by"
                    " themselves at the hard end"
                )
            context.pause()

    return _in_each_cloud(regions, context, end)


def sweep_clouds(
    context: FleetContext,
    deployment: str,
    *,
    dry_run: bool,
    older_than_s: float | None,
    lives: Callable[[str, Sequence[Instance]], bool],
) -> SweepReport:
    """Remove the abandoned fleets of a deployment; see `Provisioner.sweep`.

    `lives`: whether a gateway of a fleet, on one of the instances, says that its lease goes on.
    """
    fleets: dict[str, _Found] = {}
    orphans: list[SweptFleet] = []
    clouds = context.clouds
    for instances, resources, unreached in in_parallel(
        clouds.all(), lambda cloud: _list(clouds, cloud, deployment)
    ):
        orphans += unreached
        for instance in instances:
            fleets.setdefault(instance.tags.fleet_key, _Found()).instances.append(instance)
        for resource in resources:
            fleets.setdefault(resource.tags.fleet_key, _Found()).resources.append(resource)
    left = {key: found for key, found in sorted(fleets.items()) if not found.is_gone}
    limits = (context.options.ready_timeout_s, older_than_s)

    def sweep(key: str, found: _Found) -> SweptFleet | None:
        """Remove a fleet if it is abandoned; None if it is not."""
        if not found.orphan_reason(context.clock.wall(), *limits):
            return None
        regions, failure = found.regions, ""
        try:
            # The list may be minutes old, and a retry may have brought the fleet up again.
            found = _Found([*clouds.describe(key, regions)], [*clouds.leftovers(key, regions)])
            is_left = found.instances or found.resources
            reason = found.orphan_reason(context.clock.wall(), *limits) if is_left else ""
            gateways = found.gateways()
            if reason == _PAST and gateways and lives(key, found.alive()):
                log.warning("fleet %s is past its hard end, but its gateways live on", key)
                reason = ""
            if not reason:
                return None
            if not dry_run:
                end_fleet(key, regions, context)
        except SkyplaneError as error:
            gateways, reason, failure = (), "it is abandoned", str(error)
        return SweptFleet(key, reason, gateways, failure)

    swept = in_parallel(left.items(), lambda row: sweep(*row))
    orphans += [orphan for orphan in swept if orphan is not None]
    kept = tuple(key for key, orphan in zip(left, swept, strict=True) if orphan is None)
    return SweepReport(orphans=tuple(orphans), kept=kept, dry_run=dry_run)


@dataclass
class _Found:
    """What clouds have of one fleet."""

    instances: list[Instance] = field(default_factory=list)
    resources: list[FleetResource] = field(default_factory=list)

    @property
    def tags(self) -> FleetTags:
        # A cloud shows ended instances for a while, those of a former fleet with this key too.
        order = {"running": 0, "starting": 0, "ending": 1, "ended": 3}
        rows = [(order[one.state], one.tags) for one in self.instances]
        rows += [(2, one.tags) for one in self.resources]
        return min(rows, key=lambda row: (row[0], row[1].hard_end_unix_s))[1]

    @property
    def regions(self) -> tuple[str, ...]:
        return regions_of(self.instances, self.resources)

    @property
    def is_gone(self) -> bool:
        """Clouds show ended instances for a while; nothing is left of such a fleet."""
        return not self.resources and all(one.state == "ended" for one in self.instances)

    def gateways(self) -> tuple[str, ...]:
        return tuple(sorted({node for one in self.alive() for node in one.nodes}))

    def alive(self) -> list[Instance]:
        return [instance for instance in self.instances if instance.is_alive]

    def orphan_reason(
        self, now_s: float, ready_timeout_s: float, older_than_s: float | None
    ) -> str:
        """Why the fleet is abandoned; empty if it may be in use."""
        tags = self.tags
        age_s = now_s - tags.created_unix_s
        if now_s >= tags.hard_end_unix_s:
            return _PAST
        had_some = any(one.tags.created_unix_s >= tags.created_unix_s for one in self.instances)
        # A new fleet has a firewall before it has instances.
        if not self.gateways() and (had_some or age_s > ready_timeout_s):
            return "none of its gateways is alive"
        if older_than_s is not None and age_s > older_than_s:
            return f"made {age_s:.0f} s ago"
        return ""


def _list(
    clouds: Clouds, cloud: Machines, deployment: str
) -> tuple[Sequence[Instance], Sequence[FleetResource], list[SweptFleet]]:
    """What the fleets of a deployment have in a cloud, and its regions that are not reached.

    One lost cloud or region must not keep the instances of the others alive.
    """
    try:
        regions = clouds.regions_of(cloud)
        found, silent = answered(partial(cloud.list_resources, deployment), regions)
    except SkyplaneError as error:
        return (), (), [SweptFleet("", f"the cloud {cloud.name} is not reached", (), str(error))]
    return *found, [
        SweptFleet("", f"the region {region} is not reached", (), str(error))
        for region, error in silent.items()
    ]
