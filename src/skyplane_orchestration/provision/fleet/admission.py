"""Rules that let this process reach the gateways of fleets.

They are for the ranges of `control_cidrs`. Without ranges, each process has one for the address by
which it gets out, which it learns, and learns again where gateways do not answer. No process
removes a rule: another one may get out by the same address.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.dialing import Dial
from skyplane_orchestration.errors import (
    CloudUnavailable,
    ConfigurationInvalid,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.model.fleet import instance_of
from skyplane_orchestration.provision.fleet.ingress_rules import control_ingress
from skyplane_orchestration.provision.fleet.machines import FleetTags, Instance
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions

log = logging.getLogger(__name__)

#: Learns the address of this process from echoes. Raises CloudUnavailable.
Learn = Callable[[Sequence[str]], str]

_LEARN_EVERY_S: Final = 20.0
#: With more, the address changes with each connection, and rules for each would never suffice.
_MOST_ADDRESSES: Final = 8
#: The first attempt to connect, before this process looks whether it is let in.
_FIRST_TRY_S: Final = 4.0
_NAME_RANGES: Final = "name the ranges of your workers in control_cidrs, as 203.0.113.0/24"


class Admission:
    """Admits this process to fleets. Threads may share it."""

    def __init__(
        self, clouds: Clouds, options: InstanceOptions, clock: Clock, learn: Learn
    ) -> None:
        self._clouds = clouds
        self._options = options
        self._clock = clock
        self._learn = learn
        self._lock = threading.Lock()
        self._next_learning_s = float("-inf")
        self._failure = CloudUnavailable("this worker has not learnt its address yet")
        #: The newest address; empty before.
        self.address = ""
        #: Fleet key -> region -> the ranges that have rules.
        self._admitted: dict[str, dict[str, set[str]]] = {}
        #: Fleet key -> when the fleet was made that has these rules, whole seconds of wall time.
        self._made_unix_s: dict[str, int] = {}
        #: (fleet key, region) -> when the fleet may be looked for again, which is unreachable.
        self._next_look_s: dict[tuple[str, str], float] = {}

    def forget(self, fleet_key: str) -> None:
        """The fleet may be another one now, which has none of the rules."""
        with self._lock:
            self._admitted.pop(fleet_key, None)

    def admit(self, tags: FleetTags, regions: Iterable[str]) -> bool:
        """Add the rules that the firewalls of a fleet lack for this process; whether any did.

        Raises CloudUnavailable, CloudAccessDenied; ConfigurationInvalid: a firewall takes no more
        rules, or the address changes all the time.
        """
        regions = [one for one in regions if self._clouds.is_dialed(tags.fleet_key, one)]
        with self._lock:
            # Another process may have ended the fleet, and made it anew under the same key.
            if self._made_unix_s.get(tags.fleet_key) != tags.created_unix_s:
                self._admitted.pop(tags.fleet_key, None)
                self._made_unix_s[tags.fleet_key] = tags.created_unix_s
            cidrs = self._cidrs() if regions else ()
            lacking = self._lacking(tags.fleet_key, regions, cidrs)
            if not lacking:
                return False
            there = self._admitted.setdefault(tags.fleet_key, {})
            if self._options.control_cidrs is None and any(
                len(there.get(region, ())) >= _MOST_ADDRESSES for region in lacking
            ):
                raise ConfigurationInvalid(
                    f"this worker has got out by {_MOST_ADDRESSES} addresses already, and now by"
                    f" {self.address}; {_NAME_RANGES}"
                )
            rules = control_ingress(cidrs, tags.processes, self._options.control_port)
            try:
                self._clouds.admit(tags, lacking, rules)
            except QuotaExceeded as error:
                raise ConfigurationInvalid(
                    f"a firewall takes no rule for {', '.join(cidrs)}: {error.message}; or"
                    f" {_NAME_RANGES}: one rule then serves them all"
                ) from error
            for region in lacking:
                there.setdefault(region, set()).update(cidrs)
            return True

    def admit_to(self, instances: Iterable[Instance]) -> bool:
        """As `admit`, for a fleet whose gateways run and are about to be asked.

        Ranges have been admitted by the process that brought it up.
        """
        alive = [one for one in instances if one.is_alive]
        if self._options.control_cidrs is not None or not alive:
            return False
        return self.admit(alive[0].tags, sorted({one.region for one in alive}))

    def dial_to(self, fleet_key: str, node: str) -> Dial:
        """As `Clouds.dial_to`; a gateway that does not answer is called again with a rule."""
        region, way = instance_of(node).rpartition("/")[0], self._clouds.dial_to(fleet_key, node)
        if self._options.control_cidrs is not None or not self._clouds.is_dialed(fleet_key, region):
            return way

        def connect(host: str, port: int, timeout_s: float) -> socket.socket:
            try:
                stream = way(host, port, min(timeout_s, _FIRST_TRY_S))
            except OSError as error:
                try:
                    is_new = self._admit_again(fleet_key, region)
                except SkyplaneError as why:
                    text = f"{error}; no rule could be added for this worker: {why.message}"
                    raise ConnectionError(text) from error
                if is_new:
                    log.info("fleet %s now lets this worker in at %s", fleet_key, self.address)
                elif isinstance(error, ConnectionRefusedError):
                    raise
                return way(host, port, timeout_s)
            stream.settimeout(timeout_s)
            return stream

        return connect

    def _admit_again(self, fleet_key: str, region: str) -> bool:
        """Whether a rule was added, for a new address or in a firewall that was made anew."""
        with self._lock:
            where, now_s = (fleet_key, region), self._clock.monotonic()
            is_early = now_s < self._next_look_s.get(where, now_s)
            if is_early and not self._lacking(fleet_key, [region], self._cidrs()):
                return False
            self._next_look_s[where] = now_s + _LEARN_EVERY_S
        return self.admit_to(self._clouds.describe(fleet_key, [region]))

    def _lacking(self, fleet_key: str, regions: Iterable[str], cidrs: Sequence[str]) -> list[str]:
        there = self._admitted.get(fleet_key, {})
        return [region for region in regions if not there.get(region, set()).issuperset(cidrs)]

    def _cidrs(self) -> Sequence[str]:
        """Raises CloudUnavailable: no address could ever be learnt."""
        if self._options.control_cidrs is not None:
            return self._options.control_cidrs
        now_s = self._clock.monotonic()
        if now_s >= self._next_learning_s:
            self._next_learning_s = now_s + _LEARN_EVERY_S
            try:
                self.address = self._learn(self._options.egress_address_urls)
            except CloudUnavailable as error:
                log.warning("%s", error)
                self._failure = error
        if not self.address:
            raise self._failure
        return (f"{self.address}/32",)
