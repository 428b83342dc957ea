"""How an instance becomes gateways: its boot script, and the exchange after its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.enrolment.client import OpenStream, at_port
from skyplane_gateway.enrolment.documents import EnrolmentDocument
from skyplane_orchestration.provision.fleet.enrolment import enrol
from skyplane_orchestration.provision.fleet.machines import (
    ENROLMENT_PORT,
    FleetTags,
    Instance,
)
from skyplane_orchestration.provision.fleet.user_data import BootSettings, user_data

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: The exchange takes four round trips, and a cloud's API calls for the tag.
_ENROL_TIMEOUT_S: Final = 20.0
#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0


class Boot(Protocol):
    """Makes boot scripts, and proves and configures started instances."""

    def user_data(
        self,
        authority: Authority,
        tags: FleetTags,
        *,
        instance: str,
        launch_id: str,
        start_within_s: float,
    ) -> str:
        """The boot script of one launch. Raises ConfigurationInvalid."""

    def enrol(
        self,
        authority: Authority,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        """Prove a started instance, pin its key, configure its gateways; the id of its key.

        Args:
            gateways: node -> its configuration.
            pin: writes the key's id to the instance's tags; called before anything is issued.

        Raises:
            GatewayUnreachable: the instance does not listen yet, or not any more.
            NotAuthorised: another machine answers, or another key is pinned.
        """


def enrolment_document(
    authority: Authority, tags: FleetTags, instance: str, launch_id: str, start_within_s: float
) -> EnrolmentDocument:
    """What an instance knows at its launch."""
    return EnrolmentDocument(
        fleet_key=tags.fleet_key,
        instance=instance,
        port=ENROLMENT_PORT,
        start_within_s=start_within_s,
        authority_pem=authority.ca_certificate_pem(tags.hard_end_unix_s + _VALIDITY_MARGIN_S),
        token_hex=authority.enrolment_token(instance, launch_id).hex(),
    )


def enrol_instance(
    authority: Authority,
    instance: Instance,
    gateways: Mapping[str, GatewayConfig],
    pin: Callable[[str], None],
    open_stream: OpenStream,
    *,
    now_s: float,
) -> str:
    """`Boot.enrol` over a stream. `now_s` is the wall time."""
    return enrol(
        open_stream,
        f"{instance.address} ({instance.cloud_id})",
        authority=authority,
        instance=instance.instance,
        launch_id=instance.launch_id,
        pinned_key_id=instance.key_id,
        pin=pin,
        gateways=gateways,
        validity_s=instance.tags.hard_end_unix_s - now_s + _VALIDITY_MARGIN_S,
        timeout_s=_ENROL_TIMEOUT_S,
    )


@dataclass(frozen=True, slots=True)
class InstanceBoot:
    """See `Boot`."""

    settings: BootSettings
    clock: Clock = SYSTEM_CLOCK

    def user_data(
        self,
        authority: Authority,
        tags: FleetTags,
        *,
        instance: str,
        launch_id: str,
        start_within_s: float,
    ) -> str:
        document = enrolment_document(authority, tags, instance, launch_id, start_within_s)
        return user_data(self.settings, document, tags.hard_end_unix_s - self.clock.wall())

    def enrol(
        self,
        authority: Authority,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        stream = at_port(instance.address, ENROLMENT_PORT)
        now_s = self.clock.wall()
        return enrol_instance(authority, instance, gateways, pin, stream, now_s=now_s)
