"""Machine types: their vCPUs, architecture and zones. Google is asked once for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import ConfigurationInvalid, InstanceTypeNotOffered
from skyplane_orchestration.provision.fleet.answers import AnswerCache
from skyplane_orchestration.provision.gcp.options import region_of_zone

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi
    from skyplane_orchestration.provision.gcp.options import GcpOptions

#: Series whose instances can have no disk of the older kind.
_HYPERDISK_SERIES: Final = frozenset({"c4", "c4a", "c4d", "h4d", "m4", "n4", "n4a", "n4d", "x4"})


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """Of a machine type in a region: vCPUs, `arm64` or `x86_64`, and zones.

    Args:
        zones: those to try, in order; none if the options name other ones only.
        offered: all that have it.
    """

    vcpus: int
    architecture: str
    zones: tuple[str, ...]
    offered: tuple[str, ...]


class Types:
    """Facts of machine types. Threads may share it."""

    def __init__(self, api: GcpApi, options: GcpOptions) -> None:
        self._api = api
        self._options = options
        self._known: AnswerCache[str, dict[str, TypeFacts]] = AnswerCache()

    def of(self, region: str, instance_type: str) -> TypeFacts:
        """Raises InstanceTypeNotOffered, also if only other zones than ours have the type."""
        known = self._known.get(instance_type, lambda: self._ask(instance_type))
        facts = known.get(region)
        if facts is None:
            raise InstanceTypeNotOffered.of(region, instance_type)
        if not facts.zones:
            raise InstanceTypeNotOffered.of(region, instance_type).adding(
                f"zones of gcp names {', '.join(self._options.zones[region])} for the region,"
                f" which offers it in {', '.join(facts.offered)}"
            )
        return facts

    def disk_type(self, instance_type: str) -> str:
        """The type of a boot disk."""
        if self._options.disk_type:
            return self._options.disk_type
        is_new = instance_type.partition("-")[0] in _HYPERDISK_SERIES
        return "hyperdisk-balanced" if is_new else "pd-balanced"

    def image(self, region: str, instance_type: str) -> str:
        """The image of a boot disk. Raises ConfigurationInvalid: there is none for the type."""
        architecture = self.of(region, instance_type).architecture
        image = self._options.images.get(architecture)
        if image is None:
            raise ConfigurationInvalid(
                f"images of gcp has no image for {architecture}, which the machine type"
                f" {instance_type} needs"
            )
        return image

    def _ask(self, instance_type: str) -> dict[str, TypeFacts]:
        """Region tag -> facts, in one call for all zones of the project."""
        zones: dict[str, list[str]] = {}
        rows = {}
        for zone, row in self._api.in_zones(
            "machineTypes.aggregatedList",
            "machine_types",
            {"filter": f'name="{instance_type}"'},
            what=f"looking for the machine type {instance_type}",
            # A zone that does not answer launches nothing.
            regions=(),
        ):
            zones.setdefault(region_of_zone(zone), []).append(zone)
            rows[region_of_zone(zone)] = row
        facts = {}
        for region, offered in zones.items():
            # Every worker tries the zones in the same order.
            ours = self._options.zones.get(region, tuple(sorted(offered)))
            is_arm = rows[region].architecture == "ARM64"
            facts[region] = TypeFacts(
                vcpus=rows[region].guest_cpus,
                architecture="arm64" if is_arm else "x86_64",
                zones=tuple(zone for zone in ours if zone in offered),
                offered=tuple(sorted(offered)),
            )
        return facts
