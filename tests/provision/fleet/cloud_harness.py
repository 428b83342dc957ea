"""What the conformance suite of clouds needs from the strict fake of each cloud."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from tests.manual_clock import ManualClock

from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    Ingress,
    Instance,
    Machines,
)

#: Verbs that a harness can disturb.
LAUNCH, DESCRIBE, TERMINATE, OPEN, DELETE = "launch", "describe", "terminate", "open", "delete"
VERBS = (LAUNCH, DESCRIBE, TERMINATE, OPEN, DELETE)


#: What a cloud in memory, or hosts, cannot have, besides situations: they name it in `lacks`.
FIREWALLS: Final = "firewalls"
DISKS: Final = "disks that outlive their instance"
ZONES: Final = "several zones"
NO_SUCH_TYPE: Final = "a type that is not offered"
FOREIGN: Final = "instances of somebody else"
LOST_ANSWERS: Final = "a lost answer"
PERMISSIONS: Final = "permissions"
ORGANISATION_POLICY: Final = "a policy of the organisation"


class CloudHarness(Protocol):
    """A cloud and its strict fake.

    Attributes:
        region, other_region, third_region: tags of regions that the account may use.
        closed_region: tag of a region that it may not use.
        instance_type, vcpus: a type with so many vCPUs.
        quota_name: of the vCPUs of such instances.
        clock: the one of every worker; a sleep moves it on.
    """

    region: str
    other_region: str
    third_region: str
    closed_region: str
    instance_type: str
    vcpus: int
    quota_name: str
    clock: ManualClock

    def worker(self) -> Machines:
        """The cloud as another process sees it: nothing is remembered."""

    def hide_new(self, calls: int) -> None:
        """New resources are unknown for so many calls."""

    def end_slowly(self, calls: int) -> None:
        """Ended instances are shown as ending for so many descriptions."""

    def lose_reply(self, verb: str) -> None:
        """The next call of a verb is carried out, and its caller hears nothing."""

    def throttle(self, verb: str, times: int) -> None:
        """So many calls of a verb are refused for being too many."""

    def deny(self, verb: str) -> str:
        """Refuse a permission; its name."""

    def forbid_launches(self) -> str:
        """A policy of the organisation refuses launches with public addresses; its words."""

    def set_quota(self, vcpus: int) -> None:
        """Of every region."""

    def fill(self, region: str, *, all_zones: bool) -> None:
        """No capacity in the first zone of a region, or in all."""

    def empty(self) -> None:
        """There is capacity again."""

    def unknown_id(self, instance: Instance) -> str:
        """An id like the instance's, of no instance."""

    def end_by_hand(self, instance: Instance) -> None:
        """Somebody ends it in the cloud's console."""

    def leave_a_disk(self, instance: Instance) -> None:
        """Its disk stays when it ends."""

    def launch_foreign(self, name: str) -> None:
        """Somebody else's instance and firewall, with this name and without our tags."""

    def foreign_is_there(self) -> bool:
        """Whether the things of `launch_foreign` are as they were."""

    def firewall(self, region: str) -> set[Ingress]:
        """The rules that the cloud has for our fleets."""

    def name_of(self, resource: FleetResource) -> str:
        """The kind of a resource in words that all clouds share: `firewall`, `disk`."""

    def launches(self) -> int:
        """Instances that the cloud has made for us."""

    def leftovers(self) -> dict[str, list[str]]:
        """All that exists, by kind; empty for nothing."""


class MortalCloud:
    """A cloud whose worker may be killed at each of its calls.

    Args:
        die: called with the verb before it is carried out; raises to kill the worker.
    """

    def __init__(self, cloud: Any, die: Callable[[str], None]) -> None:
        self.name = cloud.name
        self._cloud = cloud
        self._die = die

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._cloud, verb)
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self._die(verb)
            return found(*arguments)

        return call


def silent_boot() -> Boot:
    """Its instances never listen."""

    def refused(_: float) -> socket.socket:
        raise ConnectionRefusedError("nobody listens")

    return Boot(lambda *_: "#!/bin/sh\nexit 0\n", lambda _: refused)
