"""The launch of one instance: which numbers and zones are tried, and when to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from skyplane_orchestration.errors import (
    CloudUnavailable,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
    SkyplaneError,
)
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, ErrorResponse
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest

log = logging.getLogger(__name__)

N = TypeVar("N")
Z = TypeVar("Z")

#: Most launch numbers that are tried in turn; each costs a call, and some a wait.
MOST_NUMBERS: Final = 16


def oldest_first(instances: Iterable[Instance]) -> list[Instance]:
    """Sorted by launch, so that all workers keep the same one of two with one name."""
    return sorted(instances, key=lambda one: (one.launched_unix_s, one.cloud_id))


def none_alive(cloud: str, request: LaunchRequest) -> CloudUnavailable:
    """The error for a launch whose numbers all belong to instances that have ended."""
    return CloudUnavailable(
        f"launching {request.instance}: {cloud} knows {MOST_NUMBERS} launches of it and shows none"
        " that is alive; try again later"
    )


def zones_to_try(
    cloud: str,
    wanted: Mapping[str, Sequence[str]],
    region: str,
    instance_type: str,
    offered: Sequence[str],
) -> tuple[str, ...]:
    """The zones of a region that may get an instance, in order.

    Args:
        wanted: region tag -> zones of the options; other regions use all that offer the type.
        offered: those that offer it.

    Raises InstanceTypeNotOffered: only other zones than those of the options offer it.
    """
    ours = wanted.get(region)
    usable = tuple(offered if ours is None else (zone for zone in ours if zone in offered))
    if ours is not None and not usable:
        raise InstanceTypeNotOffered.of(region, instance_type).adding(
            f"zones of {cloud} names {', '.join(ours)} for the region, which offers it in"
            f" {', '.join(offered) or 'no zone'}"
        )
    return usable


def launch_in_turn(
    request: LaunchRequest,
    numbers: Iterable[N],
    zones: Sequence[Z],
    *,
    attempt: Callable[[N, Z], Instance | None],
    named: Callable[[], Iterable[Instance]],
    translate: Callable[[ErrorResponse, str], SkyplaneError],
) -> Instance | None:
    """The first living instance; None if those of all numbers have ended.

    Args:
        attempt: the instance of a number and a zone, launched or found; None for nothing. Raises
            CloudRefusal: the zone has no such instance now.
        named: the instances of this name. Another worker may have found room in another zone.
        translate: the error for the refusal of the last zone, if none has room.
    """
    for number in numbers:
        refused: CloudRefusal | None = None
        for zone in zones:
            if refused is not None and (others := [one for one in named() if one.is_alive]):
                return oldest_first(others)[0]
            try:
                instance = attempt(number, zone)
            except CloudRefusal as refusal:
                log.info("no %s in %s: %s", request.instance_type, zone, refusal.code)
                refused = refusal
                continue
            if instance is not None and instance.is_alive:
                return instance
            break
        else:
            if refused is None:
                raise ConfigurationInvalid(f"{request.region} has no zone")
            what = f"launching {request.instance} ({request.instance_type}) in any zone"
            raise translate(refused.answer, what) from refused
        log.info("launch %s of %s has ended; trying the next", number, request.instance)
    return None
