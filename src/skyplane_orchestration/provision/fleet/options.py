"""Options of fleets on cloud instances that are the same for all clouds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from skyplane_gateway.common.schema import check, decode
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import unknown_fields
from skyplane_orchestration.model.job import require_positive
from skyplane_orchestration.model.location import CLOUDS, parse_region_tag
from skyplane_orchestration.provision.fleet.egress_address import check_echoes, known_echoes
from skyplane_orchestration.provision.fleet.ingress_rules import joined_ranges
from skyplane_orchestration.provision.fleet.machines import MOST_PROCESSES
from skyplane_orchestration.provision.gateway_settings import (
    check_gateway_settings,
    check_processes_per_instance,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

LEAST_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """How fleets on cloud instances come up and end.

    Args:
        control_cidrs: addresses of the machines that run provision, transfer and teardown, as
            `203.0.113.7/32`; the firewall lets them reach the gateways' control API. Ranges that
            overlap are joined. None: each such process learns its own, and adds a rule for it.
            Empty for machines that have no firewall of ours.
        processes_per_instance: gateways of each instance; None for one per vCPU, at most 8.
        ready_timeout_s: from the begin of `ensure` until all gateways are connected.
        boot_timeout_s: how long an instance may take from its launch until its gateways answer;
            then it is replaced, once.
        answer_timeout_s: how long an instance that has been configured may not answer before
            it is replaced.
        provision_s: cloud -> seconds from a launch until its gateways answer, for plans: the wait
            counts in costs and deadlines. Name what your fleets take, for instance with an own
            image that boots faster. Plans estimate 75 s for aws and gcp, and 120 s for azure.
        end_timeout_s: timeout until ended instances and their firewalls are gone.
        poll_s: time between two looks at a cloud, on average; at least 0.1.
        gateway_settings: more fields of every gateway's configuration.
        egress_address_urls: HTTPS addresses that answer with the IPv4 address of who asks, tried in
            turn; by default those of the variable SKYPLANE_EGRESS_ADDRESS_URLS, or public ones.

    Raises ConfigurationInvalid for an invalid value.
    """

    control_cidrs: tuple[str, ...] | None = None
    processes_per_instance: int | None = None
    ready_timeout_s: float = 420.0
    boot_timeout_s: float = 180.0
    answer_timeout_s: float = 20.0
    provision_s: Mapping[str, float] = field(default_factory=dict)
    end_timeout_s: float = 300.0
    poll_s: float = 2.0
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)
    egress_address_urls: tuple[str, ...] = field(default_factory=known_echoes)

    def __post_init__(self) -> None:
        check(self)
        check_echoes(self.egress_address_urls)
        try:
            cidrs = joined_ranges(self.control_cidrs or ())
        except ConfigurationInvalid as error:
            raise ConfigurationInvalid(f"control_cidrs: {error}") from error
        if cidrs and all(":" in cidr for cidr in cidrs):
            raise ConfigurationInvalid(
                "control_cidrs has no range of IPv4, and instances have no other address:"
                f" {', '.join(cidrs)}; add those of your workers, as 203.0.113.7/32"
            )
        if self.control_cidrs is not None:
            object.__setattr__(self, "control_cidrs", cidrs)
        check_processes_per_instance(self.processes_per_instance, MOST_PROCESSES)
        for name in ("ready_timeout_s", "boot_timeout_s", "answer_timeout_s", "end_timeout_s"):
            require_positive(name, getattr(self, name))
        if self.poll_s < LEAST_POLL_S:
            raise ConfigurationInvalid(
                f"poll_s must be at least {LEAST_POLL_S:g} s, not {self.poll_s!r}: clouds refuse"
                " those who ask too often"
            )
        for cloud, seconds in self.provision_s.items():
            if cloud not in CLOUDS:
                raise ConfigurationInvalid(
                    f"provision_s has {cloud!r}, which is no cloud; it can have {', '.join(CLOUDS)}"
                )
            if seconds < 0:
                raise ConfigurationInvalid(
                    f"provision_s of {cloud} must be a number from zero, not {seconds:g}"
                )
        check_gateway_settings(self.gateway_settings)


def options_from(kind: type[T], cloud: str, settings: Mapping[str, Any]) -> T:
    """The options of one cloud from a JSON object.

    Args:
        kind: their class.
        cloud: its name, `aws`.

    Raises ConfigurationInvalid: it names unknown fields, but not their values, nor keys in place
    of a reference to credentials.
    """
    what = f"the setting {cloud}"
    known = {field.name for field in fields(kind)}
    if unknown := sorted(str(name) for name in set(settings) - known):
        raise ConfigurationInvalid(f"{what} has {unknown_fields(unknown, known)}")
    reference = settings.get("credential_ref", "")
    if not isinstance(reference, str):
        raise ConfigurationInvalid(
            f"{what}: credential_ref must be text, such as profile:NAME, not a"
            f" {type(reference).__name__}"
        )
    return decode(kind, settings, what)


def check_regions(cloud: str, setting: str, regions: Iterable[str], example: str) -> None:
    """Raise ConfigurationInvalid for what is no region tag of a cloud.

    Args:
        setting: its name, for messages.
        example: such a tag.
    """
    for region in regions:
        if not region.startswith(f"{cloud}:"):
            raise ConfigurationInvalid(
                f"{setting} of {cloud} has {region!r}; regions are written as {example}"
            )
        parse_region_tag(region)


def check_by_region(
    cloud: str,
    setting: str,
    given: Mapping[str, str | tuple[str, ...]],
    region: str,
    form: re.Pattern[str],
    example: str,
) -> None:
    """Raise ConfigurationInvalid for what is no region of a cloud, or has a value of another form.

    Args:
        setting: its name, for messages.
        given: region tag -> one value, or several.
        region, example: a region tag and a value, for messages.
    """
    check_regions(cloud, setting, given, region)
    for tag, values in given.items():
        if not values:
            raise ConfigurationInvalid(
                f"{setting} of {cloud} for {tag} is empty; leave the region out"
            )
        for value in (values,) if isinstance(values, str) else values:
            check_form(f"{setting} of {cloud} for {tag}", value, form, example)


class _CloudOptions(Protocol):
    @property
    def regions(self) -> tuple[str, ...] | None: ...

    @property
    def disk_gib(self) -> int: ...


def check_common(
    cloud: str, options: _CloudOptions, example: str, least_disk_gib: int, most_disk_gib: int
) -> None:
    """Raise ConfigurationInvalid for wrong regions, or a disk that is too small or too large.

    Args:
        example: a region tag, for messages.
    """
    check_regions(cloud, "regions", options.regions or (), example)
    if options.regions == ():
        raise ConfigurationInvalid(f"regions of {cloud} is empty; omit it to search all regions")
    gib = options.disk_gib
    if not least_disk_gib <= gib <= most_disk_gib:
        raise ConfigurationInvalid(
            f"disk_gib of {cloud} must be from {least_disk_gib} to {most_disk_gib}, not {gib}"
        )


def check_architectures(what: str, images: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise ConfigurationInvalid for images of an architecture that no instance type has."""
    unknown = sorted(set(images) - set(known))
    if unknown:
        raise ConfigurationInvalid(
            f"{what} has no use for {', '.join(unknown)}; it can have {' and '.join(known)}"
        )


def image_for(what: str, images: Mapping[str, str], architecture: str, instance_type: str) -> str:
    """The image for an instance type. Raises ConfigurationInvalid: `images` has none.

    Args:
        what: the setting that has the images.
    """
    if architecture not in images:
        raise ConfigurationInvalid(
            f"{what} has no image for {architecture}, which {instance_type} needs"
        )
    return images[architecture]


def region_in(region: str, cloud: str, shown: str) -> str:
    """A cloud's own name of a region tag. Raises ConfigurationInvalid for another cloud's.

    Args:
        shown: the cloud as people write it.
    """
    parsed = parse_region_tag(region)
    if parsed.cloud != cloud:
        raise ConfigurationInvalid(f"{region} is not a region of {shown}")
    return parsed.name


def check_form(what: str, value: str, form: re.Pattern[str], example: str) -> None:
    """Raise ConfigurationInvalid for a value of a setting that has another form."""
    if not form.match(value):
        raise ConfigurationInvalid(f"{what} has {value!r}, which is not like {example}")
