"""Several clouds as one: each call goes to the cloud of its region, all clouds at once."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.dialing import Dial, dial, directly
from skyplane_gateway.common.identifiers import gateway_of_uri
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.enrolment.client import OpenStream
from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.model.fleet import SSH, instance_of
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.machines import (
    ENROLMENT_PORT,
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    Machines,
    Reach,
)
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import Finding

T = TypeVar("T")
R = TypeVar("R")

#: An account gets a new region rarely, and searches ask for all regions often.
_KEEP_REGIONS_S: Final = 300.0


class Clouds:
    """The clouds that a provisioner may use.

    All verbs are those of `Machines`, for regions of several clouds. The hosts of the ssh
    provisioner are one cloud, which has all regions: a host may stand in the region of a cloud. So
    may a cluster, which has some.

    Args:
        to_instance: how instances are dialed that have no way of their own.
    """

    def __init__(
        self, clouds: Iterable[Machines], clock: Clock = SYSTEM_CLOCK, to_instance: Dial = dial
    ) -> None:
        self._to_instance = to_instance
        self._by_name = {cloud.name: cloud for cloud in clouds}
        self._named = {region: one for one in self.all() for region in one.named_regions}
        self._regions: AnswerCache[str, tuple[str, ...]] = AnswerCache(_KEEP_REGIONS_S, clock)

    def of(self, region: str) -> Machines:
        """Raises ConfigurationInvalid: the cloud of the region is not configured."""
        found = self._of(region)
        if found is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ConfigurationInvalid(
                f"region {region} needs settings for the cloud {region.partition(':')[0]!r}; there"
                f" are settings for: {known}"
            )
        return found

    def _of(self, region: str) -> Machines | None:
        cloud = self._by_name.get(SSH, self._by_name.get(region.partition(":")[0]))
        return self._named.get(region, cloud)

    def reach_of(self, region: str) -> Reach:
        """Who can open connections to the instances of a region."""
        return self.of(region).reach_of(region)

    def dial_to(self, fleet_key: str, node: str) -> Dial:
        """How this process connects with a gateway. Raises ConfigurationInvalid, as `of`."""
        instance = instance_of(node)
        found = self.of(instance.rpartition("/")[0]).dial_to(fleet_key, instance)
        # Hosts are reached as they are without gateways.
        return found or (directly if SSH in self._by_name else self._to_instance)

    def is_dialed(self, fleet_key: str, region: str) -> bool:
        """Whether instances of a region are reached by their addresses, so by their firewall."""
        return self.of(region).dial_to(fleet_key, f"{region}/0") is None

    def stream_of(self, one: Instance) -> OpenStream:
        """Connects with the supervisor of an instance."""
        return partial(self.dial_to(one.tags.fleet_key, one.instance), one.address, ENROLMENT_PORT)

    def session(
        self, host: str, port: int, context: ssl.SSLContext, expected_uri: str
    ) -> ControlClient:
        """A control session with a gateway of a fleet; see `SessionFactory`."""
        way = self.dial_to(*gateway_of_uri(expected_uri))
        return ControlClient(host, port, context, expected_uri, dial=way)

    def all(self) -> tuple[Machines, ...]:
        return tuple(self._by_name.values())

    def apart(self, regions: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """The regions of each cloud. Raises ConfigurationInvalid, as `of`."""
        return tuple(tuple(its) for its in self._by_cloud(regions, str).values())

    def regions(self) -> tuple[str, ...]:
        found = in_parallel(self.all(), self.regions_of)
        return tuple(region for regions in found for region in regions)

    def unusable(self, regions: Iterable[str]) -> tuple[str, ...]:
        """Those of the regions that their clouds do not search. Asks no other cloud."""

        def unusable(cloud: Machines, its: Sequence[str]) -> list[str]:
            usable = self.regions_of(cloud)
            return [region for region in its if region not in usable]

        return self._each(regions, str, unusable)

    def regions_of(self, cloud: Machines) -> tuple[str, ...]:
        """The regions of one cloud, which is asked again after some minutes."""
        return self._regions.get(cloud.name, cloud.regions)

    def describe(self, fleet_key: str, regions: Iterable[str]) -> tuple[Instance, ...]:
        return self._each(regions, str, lambda cloud, tags: cloud.describe(fleet_key, tags))

    def leftovers(self, fleet_key: str, regions: Iterable[str]) -> tuple[FleetResource, ...]:
        return self._each(regions, str, lambda cloud, tags: cloud.leftovers(fleet_key, tags))

    def create_firewalls(self, tags: FleetTags, regions: Iterable[str]) -> None:
        self._each(regions, str, lambda cloud, its: cloud.create_firewalls(tags, its))

    def admit(self, tags: FleetTags, regions: Iterable[str], ingress: Sequence[Ingress]) -> None:
        """Add rules for workers to the firewalls of regions."""
        in_parallel(regions, lambda one: self.of(one).admit(tags, one, ingress))

    def set_ingress(self, tags: FleetTags, rules: Mapping[str, Sequence[Ingress]]) -> None:
        """Set the firewall of each region to its rules, and those of `admit`."""
        in_parallel(rules, lambda one: self.of(one).set_ingress(tags, one, rules[one]))

    def terminate(self, instances: Sequence[Instance]) -> None:
        self._each(instances, attrgetter("region"), lambda cloud, its: cloud.terminate(its))

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        return self._each(
            resources, attrgetter("region"), lambda cloud, its: cloud.delete_leftovers(its)
        )

    def quotas(self, regions: Iterable[str]) -> tuple[RegionQuota, ...]:
        """Quotas of the regions that can be used; the others may have no instance."""
        wanted = tuple(regions)
        known = [region for region in wanted if self._of(region) is not None]
        unusable = frozenset(self.unusable(known))
        usable = [region for region in known if region not in unusable]
        clouds = ", ".join(sorted(self._by_name)) or "no cloud"
        disabled = f"the account and the setting regions of {clouds}"
        unset = f"the clouds that have settings ({clouds})"
        closed = tuple(
            RegionQuota(region, disabled if region in unusable else unset, instances=0)
            for region in wanted
            if region in unusable or region not in known
        )
        return (*closed, *self._each(usable, str, lambda cloud, tags: cloud.quotas(tags)))

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        """What the checks of all clouds find; a cloud that cannot be asked is a finding."""
        found = in_parallel(self.all(), lambda cloud: check_cloud(cloud, deployment))
        return tuple(finding for findings in found for finding in findings)

    def _each(
        self,
        items: Iterable[T],
        region_of: Callable[[T], str],
        call: Callable[[Machines, Sequence[T]], Sequence[R] | None],
    ) -> tuple[R, ...]:
        """Call each cloud with its items, all at once; the joined results.

        CloudUnavailable names the regions that do not answer.
        """

        groups = self._by_cloud(items, region_of)

        def attempt(name: str) -> Sequence[R]:
            its = groups[name]
            try:
                return call(self._by_name[name], its) or ()
            except CloudUnavailable as error:
                error.regions = error.regions or tuple(dict.fromkeys(map(region_of, its)))
                raise

        found = in_parallel(groups, attempt)
        return tuple(result for results in found for result in results)

    def _by_cloud(
        self, items: Iterable[T], region_of: Callable[[T], str]
    ) -> Mapping[str, Sequence[T]]:
        groups: dict[str, list[T]] = {}
        for item in items:
            groups.setdefault(self.of(region_of(item)).name, []).append(item)
        return groups


def check_cloud(cloud: Machines, deployment: str) -> tuple[Finding, ...]:
    """What the check of a cloud finds; that it cannot be asked is a finding."""
    try:
        return cloud.check(deployment)
    except SkyplaneError as error:
        return (Finding(f"cloud {cloud.name}", False, str(error)),)
