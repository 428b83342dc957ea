"""The orchestrator's end of an enrolment: synchronous, standard library only."""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Self

from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    GatewayUnreachable,
    NotAuthorised,
    SkyplaneError,
    from_dict,
)
from skyplane_gateway.enrolment.documents import (
    MOST_MESSAGE_BYTES,
    DeliveredGateway,
    Delivery,
    EnrolmentChallenge,
    Proof,
    line_of,
    message_of,
)

_READ_BYTES: Final = 4096

OpenStream = Callable[[float], socket.socket]


class EnrolmentClient:
    """One connection to an instance that waits for its enrolment.

    The instance's certificate is self-signed, so the TLS connection alone proves nothing of it.

    Args:
        open_stream: connects with the instance within a time, in seconds. Raises OSError.
        address: of the instance, for messages.
        context: with the orchestrator's certificate; it verifies no server.
        timeout_s: longest time of the connection, from its begin to its end.

    Raises (every method):
        GatewayUnreachable: no connection, no answer in time, or the connection broke.
        NotAuthorised: the instance refuses to be enrolled.
        SkyplaneError: the instance's own error, with its class.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        address: str,
        context: ssl.SSLContext,
        timeout_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self._deadline_s = monotonic() + timeout_s
        self._received = b""
        try:
            plain = open_stream(self._remaining_s())
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            plain.settimeout(self._remaining_s())
            self._stream = context.wrap_socket(plain)
        except OSError as error:
            plain.close()
            raise self._unreachable(error) from error
        certificate = self._stream.getpeercert(binary_form=True)
        assert certificate is not None  # A server of TLS 1.3 always has one.
        #: The instance's certificate, DER.
        self.certificate_der = certificate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._stream.close()

    def prove(self, challenge: bytes) -> bytes:
        """The instance's answer to 32 random bytes; see `proof_of`."""
        answer = self._ask(line_of(EnrolmentChallenge(challenge.hex())))
        refusal = _error_in(answer)
        if refusal is not None:
            # Its class is not taken over: nothing is known of this peer yet.
            raise NotAuthorised(
                f"{self._address} refuses to be enrolled: {refusal.message[:200]!r}"
            )
        try:
            return bytes.fromhex(message_of(Proof, answer).proof_hex)
        except ConfigurationInvalid:
            raise GatewayUnreachable(
                f"{self._address} does not answer as an instance that waits for its enrolment"
            ) from None

    def deliver(self, gateways: Mapping[str, DeliveredGateway]) -> None:
        """Send certificates and configurations. The instance starts its gateways afterwards."""
        refusal = _error_in(self._ask(line_of(Delivery(gateways))))
        if refusal is not None:
            raise refusal

    def _ask(self, line: bytes) -> bytes:
        try:
            self._stream.settimeout(self._remaining_s())
            self._stream.sendall(line)
            while b"\n" not in self._received:
                if len(self._received) > MOST_MESSAGE_BYTES:
                    raise ConnectionError("its answer is too long")
                self._stream.settimeout(self._remaining_s())
                more = self._stream.recv(_READ_BYTES)
                if not more:
                    raise ConnectionError("it closed the connection")
                self._received += more
            line, _, self._received = self._received.partition(b"\n")
            return line
        except OSError as error:
            raise self._unreachable(error) from error

    def _remaining_s(self) -> float:
        remaining_s = self._deadline_s - self._monotonic()
        if remaining_s <= 0:
            raise TimeoutError(f"no answer within {self._timeout_s:g} s")
        return remaining_s

    def _unreachable(self, error: OSError) -> GatewayUnreachable:
        # asyncio closes the connection without an alert when it refuses a certificate.
        hint = (
            ""
            if isinstance(error, TimeoutError | ConnectionRefusedError)
            else "; if this stays so, the instance was launched with another fleet secret, or its"
            " clock differs by more than an hour"
        )
        return GatewayUnreachable(
            f"the instance at {self._address} cannot be enrolled now: {error}{hint}"
        )


def _error_in(answer: bytes) -> SkyplaneError | None:
    """The error that the answer is; None for any other answer."""
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    return from_dict(document) if isinstance(document, dict) and "code" in document else None
