"""Options of fleets on cloud instances that are the same for all clouds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from skyplane_gateway.common.schema import check, decode
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import unknown_fields
from skyplane_orchestration.model.job import require_positive
from skyplane_orchestration.model.location import CLOUDS, parse_region_tag
from skyplane_orchestration.provision.fleet.egress_address import check_echoes, known_echoes
from skyplane_orchestration.provision.fleet.ingress_rules import joined_ranges
from skyplane_orchestration.provision.fleet.machines import (
    ENROLMENT_PORT,
    HTTPS_PORT,
    MOST_PROCESSES,
    LaunchRequest,
)
from skyplane_orchestration.provision.fleet.user_data import hiding_identity
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
        control_port: 443 if workers may open connections to this port only: instances then take
            all calls of workers there. By default 7600, and the ports that follow.

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
    control_port: int = ENROLMENT_PORT

    def __post_init__(self) -> None:
        check(self)
        check_echoes(self.egress_address_urls)
        if self.control_port not in (ENROLMENT_PORT, HTTPS_PORT):
            raise ConfigurationInvalid(
                f"control_port must be {HTTPS_PORT}, or {ENROLMENT_PORT} for this port and those"
                f" that follow, not {self.control_port}"
            )
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudOptions:
    """What the options of every cloud have; the class of a cloud adds its own.

    Args:
        credential_ref: where credentials come from (`env:PREFIX`, `airflow:CONN_ID`; `profile:NAME`
            on AWS), as in `Location`; empty for this process's own.
        endpoint_url: address of another API of the cloud, such as that of a sovereign one or of a
            test; empty for the cloud's own.
        regions: tags of the regions that are searched for fleets; None for all of the account.
        public_address: instances get a public address. Without one, gateways and orchestrator use
            the private ones, and must reach each other by them.
        registry_identity: identity of all instances without one of their own, written as that one;
            it pulls the image, and gateways get none of its tokens.
        spot_relays: relays are spot instances.
        disk_gib: size of the root disk; at least that of the cloud's image of Debian.

    Raises ConfigurationInvalid for an invalid value.
    """

    #: A region tag, for messages; its cloud names the section of the options.
    example_region: ClassVar[str]
    #: The setting that has the identity of sources and sinks.
    identity_setting: ClassVar[str]
    #: Least and most `disk_gib`.
    disks_gib: ClassVar[tuple[int, int]]

    credential_ref: str = ""
    endpoint_url: str = ""
    regions: tuple[str, ...] | None = None
    public_address: bool = True
    registry_identity: str = ""
    spot_relays: bool = False
    disk_gib: int

    def __post_init__(self) -> None:
        check(self)
        self._check_regions("regions", self.regions or ())
        if self.regions == ():
            raise ConfigurationInvalid(
                f"{self.named('regions')} is empty; omit it to search all regions"
            )
        least, most = self.disks_gib
        if not least <= self.disk_gib <= most:
            raise ConfigurationInvalid(
                f"{self.named('disk_gib')} must be from {least} to {most}, not {self.disk_gib}"
            )

    @property
    def identities(self) -> tuple[str, ...]:
        """Those that instances may get."""
        both = (getattr(self, self.identity_setting), self.registry_identity)
        return tuple(dict.fromkeys(filter(None, both)))

    def own_identity(self, request: LaunchRequest) -> str:
        """The one by which an instance reads and writes stores; empty for none."""
        return str(getattr(self, self.identity_setting)) if request.is_end else ""

    def script_of(self, request: LaunchRequest) -> str:
        """The boot script of an instance, which has its own identity or that of the registry."""
        if self.own_identity(request) or not self.registry_identity:
            return request.user_data
        return hiding_identity(request.user_data)

    def named(self, setting: str) -> str:
        """A setting as messages name it: `regions of aws`."""
        return f"{setting} of {self.example_region.partition(':')[0]}"

    def check_form(self, setting: str, form: re.Pattern[str], example: str) -> None:
        """Raise ConfigurationInvalid for a text of another form, unless it is empty."""
        if value := getattr(self, setting):
            check_form(self.named(setting), value, form, example)

    def check_by_region(self, setting: str, form: re.Pattern[str], example: str) -> None:
        """Raise ConfigurationInvalid for what is no region of the cloud, or has another form.

        Args:
            setting: it has one value or several for each of its region tags.
            example: a value, for messages.
        """
        given: Mapping[str, str | tuple[str, ...]] = getattr(self, setting)
        self._check_regions(setting, given)
        for tag, values in given.items():
            what = f"{self.named(setting)} for {tag}"
            if not values:
                raise ConfigurationInvalid(f"{what} is empty; leave the region out")
            for value in (values,) if isinstance(values, str) else values:
                check_form(what, value, form, example)

    def check_architectures(self, setting: str, known: Mapping[str, str]) -> None:
        """Raise ConfigurationInvalid for images of an architecture that no instance type has."""
        if unknown := sorted(set(getattr(self, setting)) - set(known)):
            raise ConfigurationInvalid(
                f"{self.named(setting)} has no use for {', '.join(unknown)}; it can have"
                f" {' and '.join(known)}"
            )

    def image_for(self, setting: str, architecture: str, instance_type: str) -> str:
        """The image of an instance type. Raises ConfigurationInvalid: the setting has none."""
        images: Mapping[str, str] = getattr(self, setting)
        if architecture not in images:
            raise ConfigurationInvalid(
                f"{self.named(setting)} has no image for {architecture}, which {instance_type}"
                " needs"
            )
        return images[architecture]

    def _check_regions(self, setting: str, regions: Iterable[str]) -> None:
        cloud = self.example_region.partition(":")[0]
        for region in regions:
            if not region.startswith(f"{cloud}:"):
                raise ConfigurationInvalid(
                    f"{self.named(setting)} has {region!r}; regions are written as"
                    f" {self.example_region}"
                )
            parse_region_tag(region)


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
