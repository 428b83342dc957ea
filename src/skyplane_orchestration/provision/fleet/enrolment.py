"""The orchestrator's part in the enrolment of an instance.

docs/explanation/security.md describes the exchange, and what each party can do.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.enrolment.client import EnrolmentClient, OpenStream
from skyplane_gateway.enrolment.documents import DeliveredGateway, proof_of
from skyplane_orchestration.errors import NotAuthorised

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

_CHALLENGE_BYTES: Final = 32


def enrol(
    open_stream: OpenStream,
    address: str,
    *,
    authority: Authority,
    instance: str,
    launch_id: str,
    pinned_key_id: str,
    pin: Callable[[str], None],
    gateways: Mapping[str, GatewayConfig],
    validity_s: float,
    timeout_s: float,
) -> str:
    """Prove an instance, pin its key, and give it its gateways; the id of its key.

    May be repeated until the instance has its gateways: then it has closed the port, and they
    answer on theirs.

    Args:
        open_stream, address: how the instance is reached, and what messages call it.
        instance, launch_id: as in its enrolment document and in its tags.
        pinned_key_id: from its tags; empty before its first enrolment.
        pin: writes the key id to the instance's tags; called once, before anything secret is
            sent, unless the key is pinned already.
        gateways: node -> configuration. The instance fills in directory and hosts.
        validity_s: of the gateways' certificates.
        timeout_s: longest time of the connection, that of `pin` included.

    Raises:
        GatewayUnreachable: the instance does not listen yet, is gone, has its gateways already,
            or the connection broke.
        NotAuthorised: another machine answers, or the instance refuses this worker.
        ConfigurationInvalid: the instance cannot use its configuration.
    """
    challenge = secrets.token_bytes(_CHALLENGE_BYTES)
    with EnrolmentClient(open_stream, address, authority.enrolment_context(), timeout_s) as client:
        proof = client.prove(challenge)
        expected = proof_of(
            authority.enrolment_token(instance, launch_id),
            fleet_key=authority.fleet_key,
            instance=instance,
            challenge=challenge,
            certificate_der=client.certificate_der,
        )
        if not hmac.compare_digest(proof, expected):
            raise NotAuthorised(
                f"the machine at {address} is not instance {instance} of fleet"
                f" {authority.fleet_key}: another machine has this address, or answers in its"
                " place, or it was launched with another fleet secret; end the instance, and check"
                " who can change its network"
            )
        public_key_der, key_id = authority.public_key_of(client.certificate_der)
        if not pinned_key_id:
            pin(key_id)
        elif pinned_key_id != key_id:
            raise NotAuthorised(
                f"instance {instance} at {address} has shown another key ({key_id}) than at"
                f" its enrolment ({pinned_key_id}): it was started anew, or another machine has"
                " read its user data and answers in its place; end the instance"
            )
        client.deliver(
            {
                node: DeliveredGateway(
                    config,
                    authority.issue_for(public_key_der, authority.expected_uri(node), validity_s),
                )
                for node, config in gateways.items()
            }
        )
    return key_id
