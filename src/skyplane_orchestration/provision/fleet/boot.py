"""How an instance becomes gateways: its boot script, and the exchange after its start.

docs/explanation/security.md describes the exchange, and what each party can do.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.enrolment.client import EnrolmentClient, OpenStream
from skyplane_gateway.enrolment.documents import DeliveredGateway, EnrolmentDocument, proof_of
from skyplane_orchestration.errors import GatewayUnreachable, NotAuthorised
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT, FleetTags, Instance
from skyplane_orchestration.provision.fleet.software import Software

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: The exchange takes four round trips, and a cloud's API calls for the tag.
_TIMEOUT_S: Final = 20.0
#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0


class Boot:
    """Makes boot scripts, and proves and configures started instances.

    Args:
        script_of: the user data of an enrolment document, of the seconds until the hard end, and of
            how many gateways the instance has.
        stream_to: connects with the supervisor of an instance.
        timeout_s: longest time of an exchange, that of the tag included.
        software: what an instance waits for before it can be enrolled; None if it gets it
            elsewhere.
    """

    def __init__(
        self,
        script_of: Callable[[EnrolmentDocument, float, int], str],
        stream_to: Callable[[Instance], OpenStream],
        clock: Clock = SYSTEM_CLOCK,
        timeout_s: float = _TIMEOUT_S,
        software: Callable[[Instance], Software | None] = lambda _: None,
    ) -> None:
        self._script_of = script_of
        self._stream_to = stream_to
        self._clock = clock
        self._timeout_s = timeout_s
        self._software = software

    def user_data(
        self,
        authority: Authority,
        tags: FleetTags,
        *,
        instance: str,
        launch_id: str,
        start_within_s: float,
    ) -> str:
        """The user data of one launch. Raises ConfigurationInvalid."""
        document = EnrolmentDocument(
            fleet_key=tags.fleet_key,
            instance=instance,
            port=ENROLMENT_PORT,
            start_within_s=start_within_s,
            authority_pem=authority.ca_certificate_pem(tags.hard_end_unix_s + _VALIDITY_MARGIN_S),
            token_hex=authority.enrolment_token(instance, launch_id).hex(),
        )
        life_s = tags.hard_end_unix_s - self._clock.wall()
        return self._script_of(document, life_s, tags.processes)

    def enrol(
        self,
        authority: Authority,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        """Prove a started instance, pin its key, configure its gateways; the id of its key.

        Empty: the instance has waited for its software, has it now, and installs it.

        May be repeated until the instance has its gateways: then it has closed the port, and they
        answer on theirs.

        Args:
            gateways: node -> its configuration. The instance fills in directory and hosts.
            pin: writes the key's id to the instance's tags; called once, before anything secret is
                sent, unless the key is pinned already.

        Raises:
            GatewayUnreachable: the instance does not listen yet, is gone, has its gateways already,
                or the connection broke.
            NotAuthorised: another machine answers, another key is pinned, or the instance refuses
                this worker.
            ConfigurationInvalid: the instance cannot use its configuration.
        """
        name, address = instance.instance, f"{instance.address} ({instance.cloud_id})"
        challenge = secrets.token_bytes(32)
        context = authority.enrolment_context()
        stream = self._stream_to(instance)
        if self._push(self._software(instance), stream, address):
            return ""
        with EnrolmentClient(stream, address, context, self._timeout_s) as client:
            expected = proof_of(
                authority.enrolment_token(name, instance.launch_id),
                fleet_key=authority.fleet_key,
                instance=name,
                challenge=challenge,
                certificate_der=client.certificate_der,
            )
            if not hmac.compare_digest(client.prove(challenge), expected):
                raise NotAuthorised(
                    f"the machine at {address} is not instance {name} of fleet"
                    f" {authority.fleet_key}: another machine has this address, or answers in its"
                    " place, or it was launched with another fleet secret; end the instance, and"
                    " check who can change its network"
                )
            public_key_der, key_id = authority.public_key_of(client.certificate_der)
            if not instance.key_id:
                pin(key_id)
            elif instance.key_id != key_id:
                raise NotAuthorised(
                    f"instance {name} at {address} has shown another key ({key_id}) than at"
                    f" its enrolment ({instance.key_id}): it was started anew, or another machine"
                    " has read its user data and answers in its place; end the instance"
                )
            validity_s = instance.tags.hard_end_unix_s - self._clock.wall() + _VALIDITY_MARGIN_S
            # Each gateway gets a certificate for the instance's key.
            delivered = {}
            for node, config in gateways.items():
                uri = authority.expected_uri(node)
                certificate = authority.issue_for(public_key_der, uri, validity_s)
                delivered[node] = DeliveredGateway(config, certificate)
            client.deliver(delivered)
        return key_id

    def _push(self, software: Software | None, stream: OpenStream, address: str) -> bool:
        """Whether the instance has taken its software now. Raises GatewayUnreachable."""
        if software is None:
            return False
        try:
            is_taken = software.push(stream, self._timeout_s)
        except OSError as error:
            raise GatewayUnreachable(f"{address} cannot be sent its software: {error}") from error
        if is_taken:
            log.info("the instance at %s has its software, and installs it", address)
        return is_taken
