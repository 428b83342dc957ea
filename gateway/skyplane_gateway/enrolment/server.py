"""The instance's end of an enrolment: one exchange, with the fleet's orchestrator only."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from skyplane_gateway.common.errors import NotAuthorised, SkyplaneError
from skyplane_gateway.control.caller import caller_of
from skyplane_gateway.control.listener import Listener
from skyplane_gateway.enrolment.documents import (
    MOST_DELIVERY_BYTES,
    MOST_MESSAGE_BYTES,
    Delivery,
    EnrolmentChallenge,
    EnrolmentDocument,
    Proof,
    line_of,
    message_of,
    proof_of,
)
from skyplane_gateway.enrolment.identity import InstanceIdentity
from skyplane_gateway.transport.pending_connections import CONTROL_PORT_LIMIT, within_open_files

log = logging.getLogger(__name__)

#: Longest exchange, from the end of the handshake; the orchestrator pins the key meanwhile.
_EXCHANGE_TIMEOUT_S: Final = 60.0

#: Exchanges at the same time: a few workers may bring up the same fleet.
_MOST_EXCHANGES: Final = 8

#: Longest wait until the last answer has left.
_CLOSE_TIMEOUT_S: Final = 5.0


def enrolment_context(
    identity: InstanceIdentity, authority_pem: str, directory: Path
) -> ssl.SSLContext:
    """TLS 1.3, with the self-signed certificate; callers need one of the fleet's authority.

    The ssl module reads keys from files only, so `directory` must be private. It keeps none.

    Raises ssl.SSLError for a broken certificate of the authority.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    # A ticket would let a client come back without its certificate's key.
    context.num_tickets = 0
    context.load_verify_locations(cadata=authority_pem)
    path = directory / "enrolment.pem"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(identity.certificate_pem + identity.key_pem)
        context.load_cert_chain(path)
    finally:
        path.unlink()
    return context


class EnrolmentServer:
    """Waits for the orchestrator's delivery.

    Args:
        listener: where its orchestrator dials; it is closed with this.
        accept: checks a delivery and writes its files. Raises SkyplaneError, which is sent to
            the orchestrator; it may try again.
    """

    def __init__(
        self,
        document: EnrolmentDocument,
        identity: InstanceIdentity,
        context: ssl.SSLContext,
        listener: socket.socket,
        accept: Callable[[Delivery], None],
        exchange_timeout_s: float = _EXCHANGE_TIMEOUT_S,
    ) -> None:
        self._document = document
        self._identity = identity
        self._accept = accept
        self._exchange_timeout_s = exchange_timeout_s
        self._exchanges: set[asyncio.Task[None]] = set()
        #: Set once `accept` has taken a delivery.
        self.is_delivered = asyncio.Event()
        self._listener = Listener(
            listener, context, self._make_protocol, within_open_files(CONTROL_PORT_LIMIT)
        )

    async def close(self) -> None:
        """Close the port, and all connections after the last answer."""
        await self._listener.close()
        if self._exchanges:
            _, slow = await asyncio.wait(self._exchanges, timeout=_CLOSE_TIMEOUT_S)
            for exchange in slow:
                exchange.cancel()
            await asyncio.gather(*slow, return_exceptions=True)

    def _make_protocol(self) -> asyncio.BaseProtocol:
        # One reader holds twice its limit at most, and only after the peer has proven itself.
        reader = asyncio.StreamReader(limit=MOST_DELIVERY_BYTES)
        return asyncio.StreamReaderProtocol(reader, self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # No answer, since a gateway that was taken over could leave many unread.
        if not self._is_orchestrator(writer) or len(self._exchanges) >= _MOST_EXCHANGES:
            writer.transport.abort()
            return
        exchange = asyncio.create_task(self._serve(reader, writer))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._exchange_timeout_s):
                try:
                    await self._exchange(reader, writer)
                except SkyplaneError as error:
                    log.warning("enrolment: %s", error)
                    await _send(writer, json.dumps(error.to_dict()).encode() + b"\n")
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, ValueError) as error:
            # ValueError: a line beyond the limit. EOFError: the peer has left.
            log.warning("enrolment: a connection failed: %r", error)
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readuntil()
        if len(line) > MOST_MESSAGE_BYTES:
            raise ValueError("the challenge is too long")
        await _send(writer, line_of(Proof(self._proof(message_of(EnrolmentChallenge, line)).hex())))
        delivery = message_of(Delivery, await reader.readuntil())
        # Two workers may deliver at the same time: the second finds the instance configured.
        if not self.is_delivered.is_set():
            self._accept(delivery)
            self.is_delivered.set()
        await _send(writer, b"{}\n")

    def _is_orchestrator(self, writer: asyncio.StreamWriter) -> bool:
        try:
            caller = caller_of(writer.get_extra_info("peercert"), self._document.fleet_key)
        except NotAuthorised as error:
            log.warning("enrolment: %s", error)
            return False
        if not caller.is_orchestrator:
            log.warning("enrolment: gateway %s may not configure an instance", caller.node)
        return caller.is_orchestrator

    def _proof(self, challenge: EnrolmentChallenge) -> bytes:
        return proof_of(
            bytes.fromhex(self._document.token_hex),
            fleet_key=self._document.fleet_key,
            instance=self._document.instance,
            challenge=bytes.fromhex(challenge.challenge_hex),
            certificate_der=self._identity.certificate_der,
        )


async def _send(writer: asyncio.StreamWriter, line: bytes) -> None:
    writer.write(line)
    await writer.drain()
