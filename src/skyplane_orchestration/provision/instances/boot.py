"""How an instance becomes gateways: its boot script, and the exchange after its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.provision.instances.cloud import CloudInstance, FleetTags

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority


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
        instance: CloudInstance,
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
